"""Files of a score: MusicXML, MEI, MIDI and JSON."""
