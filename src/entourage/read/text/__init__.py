"""Text of a page: its recognition, lyrics, words, titles and names of parts."""
