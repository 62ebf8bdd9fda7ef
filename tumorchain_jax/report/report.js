"use strict";
// The viewer of report.html: takes the small scan of the page apart, and draws it.
(async () => {
  const data = document.getElementById("small-scan");
  const info = JSON.parse(data.dataset.info);
  const [D, H, W] = info.shape;

  async function greys() {
    const picture = new Image();
    picture.src = data.dataset.greys;
    await picture.decode();
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [picture.width, picture.height];
    const context = sheet.getContext("2d", { willReadFrequently: true });
    context.drawImage(picture, 0, 0);
    const columns = Math.ceil(Math.sqrt(D));
    const [wide, high] = [picture.width / columns, picture.height / Math.ceil(D / columns)];
    const made = new Uint8Array(D * H * W);
    for (let d = 0; d < D; d++) {
      const [x, y] = [(d % columns) * wide, Math.floor(d / columns) * high];
      const pixels = context.getImageData(x, y, W, H).data;
      for (let n = 0; n < H * W; n++) made[d * H * W + n] = pixels[4 * n];
    }
    return made;
  }

  async function labels() {
    const packed = Uint8Array.from(atob(data.dataset.labels), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  const part = document.querySelector(".viewer");
  const find = (name) => part.querySelector(name);
  const voxels = [await greys(), await labels()];
  const viewer = new Viewer(find(".pictures"), find(".bar"), {
    onMove: () => { find(".told-hu").textContent = `about ${Math.round(viewer.hu())} HU`; },
    onWindow: (name) => { if (name) document.body.dataset.window = name; },
  });
  viewer.load(info, ...voxels);
  for (const label of info.outlined) viewer.shown.add(label);
  const mark = () => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(viewer.shown.has(Number(button.dataset.label))));
    }
  };
  const buttons = viewer.organButtons(mark);
  find(".viewer-organs").append(...buttons);
  mark();
  // The words that name an organ lead to it.
  for (const words of document.querySelectorAll("mark[data-label]")) {
    const label = Number(words.dataset.label);
    if (!info.organs.some((organ) => organ.label === label)) continue;
    words.tabIndex = 0;
    words.setAttribute("role", "button");
    const go = () => {
      viewer.jump(label, null);
      mark();
      part.scrollIntoView({ block: "start" });
    };
    words.addEventListener("click", go);
    words.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); }
    });
  }
  find(".still").hidden = true;
  find(".live").hidden = false;
  viewer.move(info.start);
})();
