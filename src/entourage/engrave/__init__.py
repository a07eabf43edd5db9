"""MusicXML in, fully annotated score pages out."""
