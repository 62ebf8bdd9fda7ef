"use strict";
// Three linked planes of a scan, drawn from bytes that the page has: [D, H, W], towards superior,
// posterior and the patient's left. Used by report.html and by the page of `tumorchain serve`.
class Viewer {
  // `pictures` and `tools` are empty elements; `onMove` hears of each new position, and
  // `onWindow` of each window that has a name ("" for one of the reader's own).
  constructor(pictures, tools, { onMove = () => {}, onWindow = () => {} } = {}) {
    Object.assign(this, { onMove, onWindow, opacity: 1, zoom: 1, box: null, line: null });
    this.measuring = false;
    this.planes = ["Axial", "Coronal", "Sagittal"].map((name, axis) => this.makePlane(name, axis));
    pictures.classList.add("viewer-planes");
    pictures.append(...this.planes.map((plane) => plane.figure));
    this.makeTools(tools);
    new ResizeObserver(() => this.draw()).observe(pictures);
  }

  static element(name, fields = {}, ...inside) {
    const made = Object.assign(document.createElement(name), fields);
    made.append(...inside);
    return made;
  }

  makePlane(name, axis) {
    const canvas = Viewer.element("canvas", { tabIndex: 0, className: `plane-${name.toLowerCase()}` });
    canvas.setAttribute("role", "img");
    const slider = Viewer.element("input", { type: "range", min: 1, step: 1 });
    slider.setAttribute("aria-label", `${name} slice`);
    slider.addEventListener("input", () => this.to(axis, Number(slider.value) - 1));
    const caption = Viewer.element("span");
    const line = Viewer.element("figcaption", {}, caption, slider);
    const figure = Viewer.element("figure", {}, canvas, line);
    const [high, wide] = [0, 1, 2].filter((each) => each !== axis);
    const plane = { name, axis, high, wide, canvas, slider, caption, figure, centre: [0, 0] };
    plane.slice = document.createElement("canvas");
    this.listen(plane);
    return plane;
  }

  makeTools(tools) {
    const button = (text, title, action) => {
      const made = Viewer.element("button", { type: "button", textContent: text, title });
      made.addEventListener("click", action);
      return made;
    };
    const number = (text, min, max, step) => {
      const input = Viewer.element("input", { type: "number", min, max, step });
      input.addEventListener("input", () => {
        const [level, width] = [this.level, this.width].map((each) => Number(each.value));
        if (this.info && width > 0) this.window(level, width);
      });
      return [input, Viewer.element("label", {}, `${text} `, input, " HU")];
    };
    this.windows = Viewer.element("div");
    this.windows.setAttribute("role", "group");
    this.windows.setAttribute("aria-label", "Window");
    const [level, levelLabel] = number("Level", -1100, 1500, 10);
    const [width, widthLabel] = number("Width", 1, 3000, 10);
    Object.assign(this, { level, width });
    const outlines = Viewer.element("input", { type: "range", min: 0, max: 1, step: 0.1, value: 1 });
    outlines.addEventListener("input", () => {
      this.opacity = Number(outlines.value);
      this.draw();
    });
    const zoom = Viewer.element("div", {},
      button("−", "Smaller (key -)", () => this.scale(1 / 1.5)),
      button("+", "Larger (key +)", () => this.scale(1.5)),
      button("Whole", "The whole slice (key 0)", () => this.scale(0)));
    zoom.setAttribute("role", "group");
    zoom.setAttribute("aria-label", "Zoom");
    this.measure = button("Measure", "Draw a line on a plane (key M: from here, and again: to here)",
      () => this.setMeasuring(!this.measuring));
    this.measure.setAttribute("aria-pressed", "false");
    this.told = Viewer.element("output", { className: "told" });
    tools.classList.add("viewer-tools");
    tools.append(this.windows, levelLabel, widthLabel,
      Viewer.element("label", {}, "Outlines ", outlines), zoom, this.measure, this.told);
  }

  load(info, greys, labels) {
    Object.assign(this, { info, greys, labels, box: null, line: null, from: null, zoom: 1 });
    this.at = info.shape.map((size) => Math.floor(size / 2));
    this.stride = [info.shape[1] * info.shape[2], info.shape[2], 1];
    this.mm = info.shape.map((size, axis) => size * info.spacing_mm[axis]);
    this.colours = new Uint8Array(256 * 3);
    for (const organ of info.organs) this.colours.set(organ.colour, organ.label * 3);
    this.shown = new Set();
    this.told.textContent = "";
    this.image = null;
    for (const plane of this.planes) {
      const { high, wide, canvas, slice, slider, axis } = plane;
      [slice.width, slice.height] = [info.shape[wide], info.shape[high]];
      const ratio = this.mm[wide] / this.mm[high];
      canvas.style.aspectRatio = String(ratio);
      canvas.style.maxWidth = `calc(var(--tallest, 60vh) * ${ratio})`;
      slider.max = info.shape[axis];
      plane.centre = [this.mm[wide] / 2, this.mm[high] / 2];
    }
    this.windows.replaceChildren(...Object.entries(info.windows).map(([name, window]) => {
      const made = Viewer.element("button", { type: "button", textContent: window.title });
      made.dataset.window = name;
      made.addEventListener("click", () => this.window(window.level, window.width));
      return made;
    }));
    this.window(info.windows.soft.level, info.windows.soft.width);
  }

  window(level, width) {
    this.level.value = level;
    this.width.value = width;
    let name = "";
    for (const each of this.windows.children) {
      const named = this.info.windows[each.dataset.window];
      const same = named.level === level && named.width === width;
      each.setAttribute("aria-pressed", String(same));
      if (same) name = each.dataset.window;
    }
    this.table = Uint8Array.from(this.info.level_hu, (hu) =>
      Math.round(255 * Math.min(1, Math.max(0, (hu - level) / width + 0.5))));
    this.onWindow(name);
    this.draw();
  }

  to(axis, index) {
    const at = [...this.at];
    at[axis] = index;
    this.move(at);
  }

  move(at) {
    this.at = at.map((value, axis) =>
      Math.min(this.info.shape[axis] - 1, Math.max(0, Math.round(value))));
    for (const plane of this.planes) this.keepInSight(plane);
    this.draw();
  }

  // Zoom by a factor around the position; 0: the whole slice.
  scale(factor) {
    if (!this.info) return;
    this.zoom = factor ? Math.min(8, Math.max(1, this.zoom * factor)) : 1;
    for (const plane of this.planes) {
      plane.centre = this.place(plane);
      this.clamp(plane);
    }
    this.draw();
  }

  // Millimetres from a plane's upper left corner.
  place({ high, wide }, at = this.at) {
    const mm = this.info.spacing_mm;
    const y = (at[high] + 0.5) * mm[high];
    return [(at[wide] + 0.5) * mm[wide], high === 0 ? this.mm[0] - y : y];
  }

  clamp(plane) {
    const sizes = [this.mm[plane.wide], this.mm[plane.high]];
    plane.centre = plane.centre.map((value, n) => {
      const half = sizes[n] / this.zoom / 2;
      return Math.min(sizes[n] - half, Math.max(half, value));
    });
  }

  keepInSight(plane) {
    const sizes = [this.mm[plane.wide], this.mm[plane.high]];
    const place = this.place(plane);
    const out = place.some((value, n) =>
      Math.abs(value - plane.centre[n]) > sizes[n] / this.zoom / 2);
    if (out) plane.centre = place;
    this.clamp(plane);
  }

  hu() {
    const voxel = this.at.reduce((sum, value, axis) => sum + value * this.stride[axis], 0);
    return this.info.level_hu[this.greys[voxel]];
  }

  draw() {
    if (!this.info || !this.table) return;
    for (const plane of this.planes) this.drawPlane(plane);
    this.onMove(this.at);
  }

  drawSlice({ axis, high, wide, slice }) {
    const { shape } = this.info;
    const [rows, columns] = [shape[high], shape[wide]];
    const context = slice.getContext("2d");
    const image = context.createImageData(columns, rows);
    const { data } = image;
    const { labels, stride, colours, opacity } = this;
    const [down, right] = [stride[high] * (high === 0 ? -1 : 1), stride[wide]];
    // Superior is up: rows of the other two planes run down from the last slice.
    const first = this.at[axis] * stride[axis] + (high === 0 ? (rows - 1) * stride[0] : 0);
    for (let y = 0, pixel = 0; y < rows; y++) {
      let voxel = first + y * down;
      for (let x = 0; x < columns; x++, voxel += right, pixel += 4) {
        const grey = this.table[this.greys[voxel]];
        const label = labels[voxel];
        let alpha = 0;
        if (label && this.shown.has(label)) {
          const edge = x === 0 || y === 0 || x === columns - 1 || y === rows - 1
            || labels[voxel - right] !== label || labels[voxel + right] !== label
            || labels[voxel - down] !== label || labels[voxel + down] !== label;
          alpha = edge ? opacity : 0.08 * opacity;
        }
        for (let c = 0; c < 3; c++) {
          data[pixel + c] = grey * (1 - alpha) + colours[label * 3 + c] * alpha;
        }
        data[pixel + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  }

  drawPlane(plane) {
    const { axis, high, wide, canvas, slice, name } = plane;
    this.drawSlice(plane);
    const dots = window.devicePixelRatio || 1;
    const size = [canvas.clientWidth, canvas.clientHeight].map((each) =>
      Math.max(1, Math.round(each * dots)));
    if (canvas.width !== size[0] || canvas.height !== size[1]) {
      [canvas.width, canvas.height] = size;
    }
    const context = canvas.getContext("2d");
    const perMm = canvas.width / this.mm[wide] * this.zoom;
    const [left, top] = [
      canvas.width / 2 - plane.centre[0] * perMm, canvas.height / 2 - plane.centre[1] * perMm];
    const point = (place) => [left + place[0] * perMm, top + place[1] * perMm];
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = this.zoom < 4;
    context.drawImage(slice, left, top, this.mm[wide] * perMm, this.mm[high] * perMm);
    context.lineWidth = dots;
    context.strokeStyle = "rgba(120, 200, 255, .55)";
    const [x, y] = point(this.place(plane));
    context.beginPath();
    context.moveTo(x, 0); context.lineTo(x, canvas.height);
    context.moveTo(0, y); context.lineTo(canvas.width, y);
    context.stroke();
    this.drawBox(context, plane, point);
    this.drawLine(context, plane, point, dots);
    this.drawSides(context, plane, perMm, dots);
    const text = `${name}, slice ${this.at[axis] + 1} of ${this.info.shape[axis]}`;
    plane.caption.textContent = text;
    plane.slider.value = this.at[axis] + 1;
    plane.slider.setAttribute("aria-valuetext", text);
    canvas.setAttribute("aria-label",
      `${text}. Arrow keys scroll, plus and minus zoom, M measures`);
  }

  drawBox(context, plane, point) {
    if (!this.box) return;
    const [low, up] = this.box;
    const at = this.at[plane.axis];
    if (at < low[plane.axis] - 0.5 || at > up[plane.axis] + 0.5) return;
    const shift = (corner) => corner.map((value) => value - 0.5);
    const [a, b] = [shift(low), shift(up)].map((corner) => point(this.place(plane, corner)));
    context.save();
    context.setLineDash([6, 5]);
    context.strokeStyle = "rgba(255, 235, 0, .9)";
    context.strokeRect(Math.min(a[0], b[0]), Math.min(a[1], b[1]),
      Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1]));
    context.restore();
  }

  drawLine(context, plane, point, dots) {
    const { line } = this;
    if (!line || line.axis !== plane.axis || line.slice !== this.at[plane.axis]) return;
    const ends = [line.from, line.to].map(point);
    context.save();
    context.strokeStyle = context.fillStyle = "#ffe95c";
    context.lineWidth = 2 * dots;
    context.beginPath();
    context.moveTo(...ends[0]); context.lineTo(...ends[1]);
    context.stroke();
    for (const [x, y] of ends) context.fillRect(x - 2 * dots, y - 2 * dots, 4 * dots, 4 * dots);
    context.font = `${13 * dots}px system-ui, sans-serif`;
    context.shadowColor = "#000";
    context.shadowBlur = 4 * dots;
    context.fillText(`${this.length().toFixed(0)} mm`, ends[1][0] + 6 * dots, ends[1][1] - 6 * dots);
    context.restore();
  }

  // The patient's sides, and a bar of 50 mm.
  drawSides(context, { axis }, perMm, dots) {
    const sides = ["RLAP", "RLSI", "APSI"][axis];
    const { width, height } = context.canvas;
    context.save();
    context.fillStyle = context.strokeStyle = "#f2e9a0";
    context.shadowColor = "#000";
    context.shadowBlur = 3 * dots;
    context.font = `600 ${12 * dots}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const far = 10 * dots;
    const places = [[far, height / 2], [width - far, height / 2], [width / 2, far],
      [width / 2, height - far]];
    places.forEach(([x, y], n) => context.fillText(sides[n], x, y));
    const bar = 50 * perMm;
    if (bar < width * 0.8) {
      const [x, y] = [width - far, height - 8 * dots];
      context.lineWidth = 2 * dots;
      context.beginPath();
      context.moveTo(x - bar, y); context.lineTo(x, y);
      context.stroke();
      context.textAlign = "right";
      context.fillText("50 mm", x, y - 9 * dots);
    }
    context.restore();
  }

  length() {
    const { from, to } = this.line;
    return Math.hypot(to[0] - from[0], to[1] - from[1]);
  }

  setMeasuring(on) {
    this.measuring = on;
    this.from = null;
    if (!on) this.line = null;
    this.measure.setAttribute("aria-pressed", String(on));
    this.told.textContent = on ? "Draw a line on a plane" : "";
    this.draw();
  }

  drawn(plane, from, to) {
    this.line = { axis: plane.axis, slice: this.at[plane.axis], from, to };
    this.told.textContent = `${plane.name} distance: ${this.length().toFixed(1)} mm`;
    this.draw();
  }

  // The box of the cells that were looked at: millimetres, RAS+, to voxels of this copy.
  look(box) {
    this.box = null;
    if (!box) return;
    const m = this.info.to_voxel;
    const corners = [];
    for (let n = 0; n < 8; n++) {
      const p = [0, 1, 2].map((axis) => box[axis + (n >> axis & 1 ? 3 : 0)]);
      corners.push([0, 1, 2].map((r) => m[r][0] * p[0] + m[r][1] * p[1] + m[r][2] * p[2] + m[r][3]));
    }
    const of = (pick) => [0, 1, 2].map((axis) => pick(...corners.map((c) => c[axis])));
    this.box = [of(Math.min), of(Math.max)];
  }

  // Go to an organ, outline it, and show the box that was read for it.
  jump(label, box) {
    const organ = this.info.organs.find((each) => each.label === label);
    this.shown.add(label);
    this.look(box);
    this.move(organ ? organ.at : this.at);
  }

  // Buttons that go to each organ, and show or hide its outline.
  organButtons(changed = () => {}) {
    return this.info.organs.map((organ) => {
      const volume = organ.volume_ml == null ? "" : `, ${organ.volume_ml} ml`;
      const made = Viewer.element("button",
        { type: "button", className: "viewer-organ", textContent: organ.name + volume });
      made.style.setProperty("--organ", `rgb(${organ.colour.join()})`);
      made.dataset.label = organ.label;
      made.addEventListener("click", () => {
        if (this.shown.has(organ.label)) {
          this.shown.delete(organ.label);
          this.draw();
        } else this.jump(organ.label, null);
        changed();
      });
      return made;
    });
  }

  listen(plane) {
    const { canvas, axis, high, wide } = plane;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (!this.info) return;
      if (event.ctrlKey || event.metaKey) this.scale(event.deltaY > 0 ? 1 / 1.2 : 1.2);
      else this.to(axis, this.at[axis] + (event.deltaY > 0 ? -1 : 1));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (!this.info || event.ctrlKey || event.metaKey || event.altKey) return;
      const steps = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10,
        PageDown: -10, Home: -1e6, End: 1e6 };
      const zooms = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, 0: 0 };
      if (event.key in steps) this.to(axis, this.at[axis] + steps[event.key]);
      else if (event.key in zooms) this.scale(zooms[event.key]);
      else if (event.key === "m" || event.key === "M") this.mark(plane);
      else if (event.key === "Escape") this.setMeasuring(false);
      else return;
      event.preventDefault();
    });
    // Millimetres under the pointer, from the plane's upper left corner.
    const under = (event) => {
      const area = canvas.getBoundingClientRect();
      const perMm = area.width / this.mm[wide] * this.zoom;
      return [
        (event.clientX - area.left - area.width / 2) / perMm + plane.centre[0],
        (event.clientY - area.top - area.height / 2) / perMm + plane.centre[1]];
    };
    const point = (event) => {
      const [x, y] = under(event);
      const { spacing_mm: mm } = this.info;
      const at = [...this.at];
      at[wide] = Math.floor(x / mm[wide]);
      at[high] = Math.floor((high === 0 ? this.mm[0] - y : y) / mm[high]);
      this.move(at);
    };
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.info || event.button) return;
      canvas.setPointerCapture(event.pointerId);
      if (this.measuring) from = under(event);
      else if (!event.shiftKey) point(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.info || !(event.buttons & 1)) return;
      if (this.measuring && from) this.drawn(plane, from, under(event));
      else if (event.shiftKey) {
        const perMm = canvas.clientWidth / this.mm[wide] * this.zoom;
        plane.centre = [plane.centre[0] - event.movementX / perMm,
          plane.centre[1] - event.movementY / perMm];
        this.clamp(plane);
        this.draw();
      } else if (event.pointerType === "mouse") point(event);
    });
    canvas.addEventListener("pointerup", () => { from = null; });
  }

  // Measure by keys: the position is one end, and the position at the next call the other.
  mark(plane) {
    const place = this.place(plane);
    if (this.from && this.from.plane === plane && this.from.slice === this.at[plane.axis]) {
      const { place: from } = this.from;
      this.from = null;
      this.drawn(plane, from, place);
    } else {
      this.from = { plane, place, slice: this.at[plane.axis] };
      this.told.textContent = `${plane.name}: one end is here; go to the other and press M`;
    }
  }
}
