// A small synthesiser: harmonics that fade as those of a struck string, without samples.

const HARMONICS = [0, 1, 0.55, 0.3, 0.2, 0.12, 0.08, 0.05, 0.03];
const ATTACK = 0.006; // seconds
const RELEASE = 0.09;

export class Synth {
  constructor(context) {
    this.context = context;
    this.wave = context.createPeriodicWave(new Float32Array(HARMONICS.length), Float32Array.from(HARMONICS));
    this.output = context.createDynamicsCompressor();
    this.volume = context.createGain();
    this.volume.gain.value = 0.35;
    this.volume.connect(this.output).connect(context.destination);
    this.sounding = new Set();
  }

  /** Play a pitch (MIDI) from `start` to `end`, in seconds of the audio clock. `group` is muted together. */
  play(pitch, velocity, start, end, group) {
    const { context } = this;
    const oscillator = context.createOscillator();
    const gain = context.createGain();
    const level = (velocity / 127) ** 1.5 * 0.4;
    oscillator.setPeriodicWave(this.wave);
    oscillator.frequency.value = 440 * 2 ** ((pitch - 69) / 12);
    const fade = 1.8 * 2 ** ((60 - pitch) / 24); // seconds: low strings sound longer
    gain.gain.setValueAtTime(0, start);
    gain.gain.linearRampToValueAtTime(level, start + ATTACK);
    gain.gain.setTargetAtTime(level * 0.1, start + ATTACK, fade / 2);
    gain.gain.setTargetAtTime(0, Math.max(start + ATTACK, end - 0.02), RELEASE / 3);
    oscillator.connect(gain).connect(this.volume);
    oscillator.start(start);
    oscillator.stop(end + RELEASE);
    const tone = { oscillator, gain, group };
    this.sounding.add(tone);
    oscillator.onended = () => this.sounding.delete(tone);
  }

  /** End all tones, or those of a group. */
  silence(group) {
    const now = this.context.currentTime;
    for (const tone of this.sounding) {
      if (group !== undefined && tone.group !== group) continue;
      tone.gain.gain.cancelScheduledValues(now);
      tone.gain.gain.setTargetAtTime(0, now, 0.01);
      tone.oscillator.stop(now + 0.06);
      this.sounding.delete(tone);
    }
  }
}
