// Playback: tones are scheduled on the audio clock shortly before they sound, and the cursor is drawn from that clock.

import { get } from "../api.js";
import { Synth } from "./synth.js";

const AHEAD = 0.25; // seconds that are scheduled in advance
const AHEAD_HIDDEN = 1.6; // in a hidden tab, whose timers run once a second
const TICK = 40; // milliseconds between two schedules
const START = 0.06; // seconds from the key to the first tone

export class Player extends EventTarget {
  constructor(client) {
    super();
    this.client = client;
    this.tempo = 100; // quarter notes per minute
    this.muted = new Set(); // "part/staff"
    this.loop = null; // [first, last] position of the measures that are repeated
    this.isPlaying = false;
    this.version = -1;
    this.loading = null;
  }

  /** Fetch tones and places again, if the score has changed. */
  load() {
    if (this.version !== this.client.state.version) {
      this.loading ??= this.fetch().finally(() => (this.loading = null));
    }
    return this.loading ?? Promise.resolve();
  }

  async fetch() {
    const { tones, measures, places, version } = await get(`${this.client.path}/playback`);
    Object.assign(this, { tones, measures, places, version });
    if (this.isPlaying) this.restart(this.position());
  }

  get end() {
    return this.measures.at(-1)?.[1] ?? 0;
  }

  /** Play from the beginning of a measure. */
  async play(measure) {
    this.context ??= new AudioContext({ latencyHint: "interactive" });
    this.synth ??= new Synth(this.context);
    await Promise.all([this.context.resume(), this.load()]);
    const first = this.measures.find((row) => row[2] === measure) ?? this.measures[0];
    if (!first) return;
    this.isPlaying = true;
    this.restart(first[0], START);
    this.timer ??= setInterval(() => this.schedule(), TICK);
    this.dispatchEvent(new Event("change"));
    this.draw();
  }

  stop() {
    if (!this.isPlaying) return;
    this.isPlaying = false;
    clearInterval(this.timer);
    this.timer = undefined;
    this.synth.silence();
    this.dispatchEvent(new Event("change"));
    this.dispatchEvent(new CustomEvent("cursor", { detail: null }));
  }

  /** Continue at a time of the score, in quarter notes. */
  restart(quarter, delay = 0) {
    this.synth.silence();
    this.origin = { quarter, time: this.context.currentTime + delay };
    this.next = this.tones.findIndex((tone) => tone[0] >= quarter - 1e-6);
    if (this.next < 0) this.next = this.tones.length;
    this.schedule();
  }

  /** Time of the score that sounds at a time of the audio clock. */
  position(time = this.now()) {
    const quarter = this.origin.quarter + Math.max(0, time - this.origin.time) * (this.tempo / 60);
    const borders = this.borders;
    if (!borders || this.origin.quarter >= borders[1] || quarter < borders[1]) return quarter;
    return borders[0] + ((quarter - borders[0]) % (borders[1] - borders[0])); // a loop whose next turn is not scheduled yet
  }

  /** Time of the audio clock that is audible now. */
  now() {
    return this.context.currentTime - (this.context.outputLatency || 0);
  }

  timeOf(quarter) {
    return this.origin.time + (quarter - this.origin.quarter) * (60 / this.tempo);
  }

  setTempo(tempo) {
    const quarter = this.isPlaying ? this.position() : 0;
    this.tempo = tempo;
    if (this.isPlaying) this.restart(quarter);
  }

  /** Time of the score at which a loop ends and begins, or null. */
  get borders() {
    if (!this.loop) return null;
    const [first, last] = this.loop;
    const begin = this.measures.find((row) => row[2] === first);
    const end = this.measures.find((row) => row[2] === last && row[0] >= (begin?.[0] ?? 0));
    return begin && end ? [begin[0], end[1]] : null;
  }

  schedule() {
    if (!this.isPlaying) return;
    const until = this.context.currentTime + (document.hidden ? AHEAD_HIDDEN : AHEAD);
    const borders = this.borders;
    for (;;) {
      const end = borders && this.origin.quarter < borders[1] ? borders[1] : this.end;
      const tone = this.tones[this.next];
      if (tone && tone[0] < end - 1e-6) {
        if (this.timeOf(tone[0]) > until) return;
        this.sound(tone, end);
        this.next += 1;
      } else if (this.context.currentTime < this.timeOf(end) - TICK / 1000) {
        return;
      } else if (borders) {
        const time = this.timeOf(end);
        this.origin = { quarter: borders[0], time };
        this.next = Math.max(0, this.tones.findIndex((other) => other[0] >= borders[0] - 1e-6));
      } else {
        if (this.position() >= end) this.stop();
        return;
      }
    }
  }

  sound([start, end, pitch, velocity, part, staff], limit) {
    const group = `${part}/${staff}`;
    if (this.muted.has(group)) return;
    const begin = Math.max(this.context.currentTime, this.timeOf(start));
    this.synth.play(pitch, velocity, begin, Math.max(begin + 0.03, this.timeOf(Math.min(end, limit))), group);
  }

  mute(group, isMuted) {
    if (isMuted) {
      this.muted.add(group);
      this.synth?.silence(group);
    } else this.muted.delete(group);
  }

  /** Draw the cursor in every frame for as long as the score is played. */
  draw() {
    if (!this.isPlaying) return;
    this.dispatchEvent(new CustomEvent("cursor", { detail: this.placeAt(this.position()) }));
    requestAnimationFrame(() => this.draw());
  }

  /** Measure, page and x of a time of the score, in quarter notes. */
  placeAt(quarter) {
    const row = this.measures.find(([, end]) => quarter < end) ?? this.measures.at(-1);
    const [start, , index] = row;
    const { page, box } = this.client.measureAt(index);
    const places = this.places[index];
    if (!box || !places.length) return { quarter, index, page: -1 };
    const time = Math.max(0, quarter - start);
    const after = places.findIndex(([at]) => at > time);
    if (after <= 0) return { quarter, index, page, x: after ? places.at(-1)[1] : places[0][1], y0: box[1], y1: box[3] };
    const [[t0, x0], [t1, x1]] = [places[after - 1], places[after]];
    const x = x0 + ((x1 - x0) * (time - t0)) / (t1 - t0);
    return { quarter, index, page, x, y0: box[1], y1: box[3] };
  }
}
