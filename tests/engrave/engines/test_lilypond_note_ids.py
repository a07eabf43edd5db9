from entourage.engrave.engines.lilypond import ids_by_onset_and_pitch


def score(*parts: str) -> str:
    inside = "".join(f"<part id='P{i}'>{part}</part>" for i, part in enumerate(parts))
    return f"<score-partwise>{inside}</score-partwise>"


def note(name: str, duration: int, pitch: str = "C4", extra: str = "") -> str:
    where = f"<pitch><step>{pitch[0]}</step><octave>{pitch[-1]}</octave></pitch>"
    return f"<note id='{name}'>{extra}{where}<duration>{duration}</duration></note>"


def test_onsets_with_chords_grace_notes_and_backups() -> None:
    grace = "<note id='g'><grace/><pitch><step>D</step><alter>1</alter><octave>4</octave></pitch></note>"
    start = "<attributes><divisions>2</divisions></attributes>"
    content = note("a", 2) + note("b", 2, "E4", "<chord/>") + grace + note("c", 1)
    content += "<backup><duration>3</duration></backup>" + note("d", 2, "G3")
    found = ids_by_onset_and_pitch(score(f"<measure>{start}{content}</measure><measure>{note('e', 2)}</measure>"))
    assert found == {(0, 60): ["a"], (0, 64): ["b"], (1, 63): ["g"], (1, 60): ["c"], (0, 55): ["d"], (1.5, 60): ["e"]}


def test_measures_start_at_the_same_time_in_all_parts() -> None:
    long = f"<measure>{note('a', 4)}</measure><measure>{note('b', 1)}</measure>"
    short = f"<measure>{note('c', 3)}</measure><measure>{note('d', 1)}</measure>"
    assert ids_by_onset_and_pitch(score(long, short))[4, 60] == ["b", "d"]


def test_unpitched_notes_have_no_number() -> None:
    assert ids_by_onset_and_pitch(score("<measure><note id='x'><rest/><duration>1</duration></note></measure>")) == {
        (0, None): ["x"]
    }
