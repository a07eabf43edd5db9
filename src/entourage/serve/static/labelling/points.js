// Drawing of up to 200,000 points with WebGL. Panning and zooming change two numbers; no point is touched.

const VERTEX = `
attribute vec2 position;
attribute vec4 color;
uniform vec2 center;
uniform vec2 scale;
uniform float size;
varying vec4 shade;
void main() {
  gl_Position = vec4((position - center) * scale, 0.0, 1.0);
  gl_PointSize = color.a > 0.0 ? size : 0.0;
  shade = color;
}`;
const FRAGMENT = `
precision mediump float;
varying vec4 shade;
void main() {
  vec2 offset = gl_PointCoord - 0.5;
  if (dot(offset, offset) > 0.25) discard;
  gl_FragColor = vec4(shade.rgb * shade.a, shade.a);
}`;

export class PointRenderer {
  constructor(canvas) {
    this.canvas = canvas;
    this.gl = canvas.getContext("webgl", { antialias: false, premultipliedAlpha: true });
    this.n = 0;
    if (this.gl) this.setUp();
    else this.flat = canvas.getContext("2d");
  }

  setUp() {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(type);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    gl.useProgram(program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.uniforms = Object.fromEntries(["center", "scale", "size"].map((name) => [name, gl.getUniformLocation(program, name)]));
    this.buffers = { position: this.attribute(program, "position", 2, gl.FLOAT), color: this.attribute(program, "color", 4, gl.UNSIGNED_BYTE) };
  }

  attribute(program, name, size, type) {
    const { gl } = this;
    const buffer = gl.createBuffer();
    const location = gl.getAttribLocation(program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(location);
    gl.vertexAttribPointer(location, size, type, type === gl.UNSIGNED_BYTE, 0, 0);
    return buffer;
  }

  /** Set the positions, x and y of each point in turn. */
  setPositions(positions) {
    this.n = positions.length / 2;
    this.positions = positions;
    if (this.gl) this.upload(this.buffers.position, positions);
    if (this.colors?.length !== 4 * this.n) this.setColors(new Uint8Array(4 * this.n));
  }

  /** Set red, green, blue and opacity of each point, 0 to 255; opacity 0 hides it. */
  setColors(colors) {
    this.colors = colors;
    if (this.gl) this.upload(this.buffers.color, colors);
  }

  upload(buffer, values) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, buffer);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.DYNAMIC_DRAW);
  }

  /** Draw all points: `view` has center x, y and pixels per unit. */
  draw(view, pointSize) {
    const { width, height } = this.canvas;
    if (!this.gl) {
      this.drawFlat(view, pointSize);
      return;
    }
    const { gl } = this;
    gl.viewport(0, 0, width, height);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform2f(this.uniforms.center, view.x, view.y);
    gl.uniform2f(this.uniforms.scale, (2 * view.zoom) / width, (2 * view.zoom) / height);
    gl.uniform1f(this.uniforms.size, pointSize);
    gl.drawArrays(gl.POINTS, 0, this.n);
  }

  /** Draw squares where there is no WebGL. */
  drawFlat(view, pointSize) {
    const { width, height } = this.canvas;
    const { flat, positions, colors } = this;
    const image = flat.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const half = Math.max(0, Math.floor(pointSize / 2));
    for (let i = 0; i < this.n; i += 1) {
      if (!colors[4 * i + 3]) continue;
      const color = (colors[4 * i + 3] << 24) | (colors[4 * i + 2] << 16) | (colors[4 * i + 1] << 8) | colors[4 * i];
      const x = Math.round((positions[2 * i] - view.x) * view.zoom + width / 2);
      const y = Math.round(height / 2 - (positions[2 * i + 1] - view.y) * view.zoom);
      for (let row = Math.max(0, y - half); row <= Math.min(height - 1, y + half); row += 1) {
        const end = Math.min(width - 1, x + half);
        for (let column = Math.max(0, x - half); column <= end; column += 1) pixels[row * width + column] = color;
      }
    }
    flat.putImageData(image, 0, 0);
  }
}

/** Indices of the points inside a polygon [[x, y], ...]; hidden points are left out. */
export function pointsInside(polygon, positions, colors) {
  const xs = polygon.map((corner) => corner[0]);
  const ys = polygon.map((corner) => corner[1]);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const found = [];
  for (let i = 0; i < positions.length / 2; i += 1) {
    const x = positions[2 * i];
    const y = positions[2 * i + 1];
    if (x < left || x > right || y < low || y > high || !colors[4 * i + 3]) continue;
    let inside = false;
    for (let a = 0, b = xs.length - 1; a < xs.length; b = a, a += 1) {
      if (ys[a] > y !== ys[b] > y && x < ((xs[b] - xs[a]) * (y - ys[a])) / (ys[b] - ys[a]) + xs[a]) inside = !inside;
    }
    if (inside) found.push(i);
  }
  return found;
}

/** Index of the visible point that is nearest to x, y within a distance, or -1. */
export function nearestPoint(x, y, distance, positions, colors) {
  let best = distance * distance;
  let nearest = -1;
  for (let i = 0; i < positions.length / 2; i += 1) {
    if (!colors[4 * i + 3]) continue;
    const dx = positions[2 * i] - x;
    const dy = positions[2 * i + 1] - y;
    const squared = dx * dx + dy * dy;
    if (squared < best) {
      best = squared;
      nearest = i;
    }
  }
  return nearest;
}
