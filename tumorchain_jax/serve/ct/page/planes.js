"use strict";
// Three linked planes of a scan, drawn from bytes that the page has: [D, H, W], towards superior,
// posterior and the patient's left.
class Planes {
  constructor(canvases, onMove) {
    this.canvases = canvases;
    this.onMove = onMove;
    this.box = null;
    this.opacity = 1;
    canvases.forEach((canvas, axis) => this.listen(canvas, axis));
  }

  load(info, greys, labels) {
    this.info = info;
    this.greys = greys;
    this.labels = labels;
    this.at = info.shape.map((size) => Math.floor(size / 2));
    this.box = null;
    this.colours = new Uint8Array(256 * 3);
    for (const organ of info.organs) this.colours.set(organ.colour, organ.label * 3);
    this.shown = new Set();
    this.canvases.forEach((canvas, axis) => {
      const [high, wide] = this.axes(axis);
      canvas.width = info.shape[wide];
      canvas.height = info.shape[high];
      const mm = (each) => info.shape[each] * info.spacing_mm[each];
      canvas.style.aspectRatio = `${mm(wide)} / ${mm(high)}`;
      canvas.setAttribute("aria-valuemin", "1");
      canvas.setAttribute("aria-valuemax", String(info.shape[axis]));
    });
  }

  axes(axis) { return [0, 1, 2].filter((each) => each !== axis); }

  window(level, width) {
    this.table = Uint8Array.from(this.info.level_hu, (hu) =>
      Math.round(255 * Math.min(1, Math.max(0, (hu - level) / width + 0.5))));
    this.draw();
  }

  move(at) {
    this.at = at.map((value, axis) =>
      Math.min(this.info.shape[axis] - 1, Math.max(0, Math.round(value))));
    this.draw();
  }

  hu() {
    const [, H, W] = this.info.shape;
    const [d, h, w] = this.at;
    return this.info.level_hu[this.greys[(d * H + h) * W + w]];
  }

  draw() {
    if (!this.info || !this.table) return;
    this.canvases.forEach((canvas, axis) => this.plane(canvas, axis));
    this.onMove(this.at);
  }

  plane(canvas, axis) {
    const [high, wide] = this.axes(axis);
    const { shape } = this.info;
    const stride = [shape[1] * shape[2], shape[2], 1];
    const [rows, columns] = [shape[high], shape[wide]];
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    const start = this.at[axis] * stride[axis];
    // Superior is up: rows of the other two planes run down from the last slice.
    const row = (y) => (high === 0 ? rows - 1 - y : y);
    for (let y = 0; y < rows; y++) {
      let voxel = start + row(y) * stride[high];
      for (let x = 0; x < columns; x++, voxel += stride[wide]) {
        const pixel = (y * columns + x) * 4;
        const grey = this.table[this.greys[voxel]];
        const label = this.labels[voxel];
        let alpha = 0;
        if (label && this.shown.has(label)) {
          const edge = x === 0 || y === 0 || x === columns - 1 || y === rows - 1
            || this.labels[voxel - stride[wide]] !== label
            || this.labels[voxel + stride[wide]] !== label
            || this.labels[voxel - stride[high]] !== label
            || this.labels[voxel + stride[high]] !== label;
          alpha = edge ? this.opacity : 0;
        }
        for (let c = 0; c < 3; c++) {
          image.data[pixel + c] = grey * (1 - alpha) + this.colours[label * 3 + c] * alpha;
        }
        image.data[pixel + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
    const px = Math.max(columns, rows) / 400;
    context.lineWidth = Math.max(0.6, px);
    context.strokeStyle = "rgba(120, 200, 255, .55)";
    context.beginPath();
    const x = this.at[wide] + 0.5;
    const y = row(this.at[high]) + 0.5;
    context.moveTo(x, 0); context.lineTo(x, rows);
    context.moveTo(0, y); context.lineTo(columns, y);
    context.stroke();
    this.drawBox(context, axis, high, wide, row);
    const name = ["Axial", "Coronal", "Sagittal"][axis];
    const text = `${name}, slice ${this.at[axis] + 1} of ${shape[axis]}`;
    canvas.nextElementSibling.textContent = text;
    canvas.setAttribute("aria-label", `${name} plane`);
    canvas.setAttribute("aria-valuenow", String(this.at[axis] + 1));
    canvas.setAttribute("aria-valuetext", text);
  }

  drawBox(context, axis, high, wide, row) {
    if (!this.box) return;
    const [low, top] = this.box;
    if (this.at[axis] < low[axis] - 0.5 || this.at[axis] > top[axis] + 0.5) return;
    const ys = [row(low[high]), row(top[high])].sort((a, b) => a - b);
    context.setLineDash([4, 3]);
    context.strokeStyle = "rgba(255, 235, 0, .9)";
    context.strokeRect(low[wide], ys[0], top[wide] - low[wide], ys[1] - ys[0]);
    context.setLineDash([]);
  }

  // The box of the cells that were looked at: millimetres, RAS+, to voxels of this copy.
  look(box) {
    this.box = null;
    if (box) {
      const m = this.info.to_voxel;
      const corners = [];
      for (let n = 0; n < 8; n++) {
        const p = [0, 1, 2].map((axis) => box[axis + (n >> axis & 1 ? 3 : 0)]);
        corners.push([0, 1, 2].map((r) => m[r][0] * p[0] + m[r][1] * p[1] + m[r][2] * p[2] + m[r][3]));
      }
      const of = (pick) => [0, 1, 2].map((axis) => pick(...corners.map((c) => c[axis])));
      this.box = [of(Math.min), of(Math.max)];
    }
  }

  listen(canvas, axis) {
    const by = (step) => {
      const at = [...this.at];
      at[axis] += step;
      this.move(at);
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (this.info) by(event.deltaY > 0 ? -1 : 1);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10, PageDown: -10 };
      const ends = { Home: -1e6, End: 1e6 };
      const step = steps[event.key] ?? ends[event.key];
      if (step === undefined || !this.info) return;
      event.preventDefault();
      by(step);
    });
    const point = (event) => {
      if (!this.info) return;
      const [high, wide] = this.axes(axis);
      const area = canvas.getBoundingClientRect();
      // The picture keeps its proportions within the canvas's box.
      const { shape, spacing_mm: mm } = this.info;
      const [w, h] = [shape[wide] * mm[wide], shape[high] * mm[high]];
      const scale = Math.min(area.width / w, area.height / h);
      const x = (event.clientX - area.left - (area.width - w * scale) / 2) / scale / mm[wide];
      const y = (event.clientY - area.top - (area.height - h * scale) / 2) / scale / mm[high];
      const at = [...this.at];
      at[wide] = Math.floor(x);
      at[high] = Math.floor(high === 0 ? shape[high] - y : y);
      this.move(at);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      point(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons === 1 && event.pointerType === "mouse") point(event);
    });
  }
}
