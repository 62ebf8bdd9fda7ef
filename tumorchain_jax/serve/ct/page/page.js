"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const planes = new Planes([$("axial"), $("coronal"), $("sagittal")], () => {
    const mm = planes.at.map((value) => value + 1).join(", ");
    $("point").textContent = `Slices ${mm}: about ${Math.round(planes.hu())} HU`;
  });
  let model = "", scan = null, organs = new Map(), running = null;
  let key = sessionStorage.getItem("key") || "";

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function say(text, bad = false) {
    $("status").textContent = text;
    $("status").classList.toggle("bad", bad);
  }

  const headers = (more = {}) => (key ? { Authorization: `Bearer ${key}`, ...more } : more);

  async function problem(response) {
    try {
      return (await response.json()).error.message;
    } catch {
      return `the server said ${response.status}`;
    }
  }

  async function get(path) {
    const response = await fetch(path, { headers: headers() });
    if (response.status === 401) $("with-key").hidden = false;
    if (!response.ok) throw new Error(await problem(response));
    return response;
  }

  async function begin() {
    try {
      model = (await (await get("v1/models")).json()).data[0].id;
      const root = await (await get("v1/root")).json();
      $("from-root").hidden = !root.root;
      for (const path of root.scans) {
        const option = element("option", path);
        option.value = path;
        $("root").append(option);
      }
      say("");
    } catch (error) {
      say(error.message, true);
    }
  }

  function upload(file) {
    return new Promise((resolve, reject) => {
      const form = new FormData();
      form.append("purpose", "user_data");
      form.append("file", file);
      const request = new XMLHttpRequest();
      request.open("POST", "v1/files");
      if (key) request.setRequestHeader("Authorization", `Bearer ${key}`);
      request.responseType = "json";
      request.upload.onprogress = (event) => {
        $("progress").hidden = false;
        $("progress").max = event.total;
        $("progress").value = event.loaded;
      };
      request.onloadend = () => {
        $("progress").hidden = true;
        if (request.status === 200) resolve(request.response);
        else reject(new Error(request.response?.error?.message ?? "the upload failed"));
      };
      request.send(form);
    });
  }

  async function open(get_file) {
    $("send").disabled = true;
    try {
      const file = await get_file();
      say(`${file.filename}: reading it and finding its organs …`);
      const info = await (await get(`v1/scans/${file.id}`)).json();
      const [greys, labels] = await Promise.all(["greys", "labels"].map(async (what) =>
        new Uint8Array(await (await get(`v1/scans/${file.id}/${what}`)).arrayBuffer())));
      scan = file;
      show(info, greys, labels);
      const less = info.reduced ? "; the picture is coarser than the scan" : "";
      say(`${file.filename}: ${info.organs.length} organs found${less}`);
      $("send").disabled = false;
    } catch (error) {
      say(error.message, true);
      $("send").disabled = scan === null;
    }
  }

  function show(info, greys, labels) {
    $("viewer").hidden = false;
    planes.load(info, greys, labels);
    organs = new Map(info.organs.map((organ) => [organ.label, organ]));
    $("organs").replaceChildren(...info.organs.map((organ) => {
      const volume = organ.volume_ml === null ? "" : ` ${organ.volume_ml} ml`;
      const button = element("button", organ.name + volume, "organ");
      button.type = "button";
      button.style.setProperty("--organ", `rgb(${organ.colour.join()})`);
      button.addEventListener("click", () => jump(organ.label, null));
      return button;
    }));
    $("windows").replaceChildren(...Object.entries(info.windows).map(([name, window]) => {
      const button = element("button", window.title);
      button.type = "button";
      button.dataset.window = name;
      button.addEventListener("click", () => setWindow(window.level, window.width));
      return button;
    }));
    planes.windows = info.windows;
    setWindow(info.windows.soft.level, info.windows.soft.width);
  }

  function setWindow(level, width) {
    $("level").value = level;
    $("width").value = width;
    for (const button of $("windows").children) {
      const named = planes.windows[button.dataset.window];
      button.setAttribute("aria-pressed", String(named.level === level && named.width === width));
    }
    planes.window(level, width);
  }

  function jump(label, box) {
    const organ = organs.get(label);
    planes.shown.add(label);
    planes.look(box);
    planes.move(organ ? organ.at : planes.at);
    $("viewer").scrollIntoView({ block: "nearest" });
  }

  // A round's text is data: the words that name organs become buttons, all else is text.
  function roundOf(round) {
    const made = element("div", undefined, "round");
    made.append(element("h3", `Round ${round.number}`));
    const text = element("p", undefined, "text");
    const letters = [...round.text];  // spans count characters, not UTF-16 units
    let done = 0;
    const named = [...round.organs].sort((a, b) => a.span[0] - b.span[0] || b.span[1] - a.span[1]);
    for (const organ of named) {
      const [start, end] = organ.span;
      if (start < done || end <= start) continue;
      text.append(letters.slice(done, start).join(""));
      const words = letters.slice(start, end).join("");
      if (organs.has(organ.label)) {
        const button = element("button", words);
        button.type = "button";
        const outcome = organ.outcome.replaceAll("_", " ");
        button.title = `${organs.get(organ.label).name}: ${outcome}. Show it`;
        button.style.setProperty("--organ", `rgb(${organs.get(organ.label).colour.join()})`);
        button.addEventListener("click", () => jump(organ.label, organ.box_mm));
        text.append(button);
        planes.shown.add(organ.label);
      } else {
        text.append(words);
      }
      done = end;
    }
    text.append(letters.slice(done).join(""));
    made.append(text);
    const looked = round.organs.filter((organ) => organ.outcome === "looked_at");
    if (looked.length) {
      const names = looked.map((o) => organs.get(o.label)?.name ?? o.organ).join(", ");
      made.append(element("p", `Looked again at: ${names}`, "behind"));
      jump(looked[0].label, looked[0].box_mm);
    }
    planes.draw();
    return made;
  }

  function conclude(card, metadata) {
    const title = metadata.answered ? "Model's answer" : "No answer";
    card.append(element("p", title, "behind"));
    const className = metadata.answered ? "answer text" : "answer withheld text";
    card.append(element("p", metadata.headline, className));
    const behind = [];
    if (!metadata.answered) behind.push(`The model's text, not to be relied on: ${metadata.conclusion}`);
    behind.push(`${metadata.confidence.text}; ${metadata.evaluation.text}.`);
    for (const line of behind) card.append(element("p", line, "behind"));
    if (metadata.warnings.length) {
      const more = element("details");
      more.append(element("summary", `${metadata.warnings.length} warnings`, "behind"));
      for (const line of metadata.warnings) more.append(element("p", line, "behind"));
      card.append(more);
    }
    const save = element("button", "Save as JSON");
    save.type = "button";
    save.addEventListener("click", () => {
      const link = element("a");
      const text = JSON.stringify(metadata, null, 1);
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = "answer.json";
      link.click();
      URL.revokeObjectURL(link.href);
    });
    card.append(save);
  }

  async function ask(question, card, signal) {
    const content = [
      { type: "text", text: question },
      { type: "file", file: { file_id: scan.id } },
    ];
    const body = { model, stream: true, messages: [{ role: "user", content }] };
    const response = await fetch("v1/chat/completions", {
      method: "POST", signal, body: JSON.stringify(body),
      headers: headers({ "Content-Type": "application/json" }),
    });
    if (!response.ok) throw new Error(await problem(response));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", rounds = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const data = event.replace(/^data: /, "");
        if (data === "[DONE]") return;
        const values = JSON.parse(data);
        if (values.error) throw new Error(values.error.message);
        const delta = values.choices[0]?.delta ?? {};
        if (delta.type === "round") {
          rounds.push(roundOf(delta.round));
          card.append(rounds.at(-1));
        } else if (delta.type === "again") {
          for (const each of rounds.splice(0)) each.remove();
        }
        if (values.metadata) conclude(card, values.metadata);
      }
    }
  }

  $("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = $("question").value.trim();
    if (!question || !scan || running) return;
    const card = element("article");
    card.append(element("h2", question, "text"), element("p", scan.filename, "behind"));
    $("answers").prepend(card);
    running = new AbortController();
    $("send").disabled = true;
    $("stop").hidden = false;
    try {
      await ask(question, card, running.signal);
    } catch (error) {
      const text = error.name === "AbortError" ? "stopped" : error.message;
      card.append(element("p", text, "bad"));
    }
    running = null;
    $("send").disabled = false;
    $("stop").hidden = true;
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      $("ask").requestSubmit();
    }
  });
  for (const button of document.querySelectorAll("[data-task]")) {
    button.addEventListener("click", () => { $("question").value = button.dataset.task; });
  }
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    if (file) open(() => { say(`${file.name}: sending …`); return upload(file); });
  });
  const drop = $("drop");
  for (const name of ["dragenter", "dragover"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  document.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (file) open(() => { say(`${file.name}: sending …`); return upload(file); });
  });
  $("root").addEventListener("change", () => {
    const path = $("root").value;
    if (!path) return;
    open(async () => {
      const response = await fetch("v1/files", {
        method: "POST", body: JSON.stringify({ path }),
        headers: headers({ "Content-Type": "application/json" }),
      });
      if (!response.ok) throw new Error(await problem(response));
      return response.json();
    });
  });
  for (const id of ["level", "width"]) {
    $(id).addEventListener("input", () => {
      const [level, width] = [Number($("level").value), Number($("width").value)];
      if (planes.info && width > 0) setWindow(level, width);
    });
  }
  $("opacity").addEventListener("input", () => {
    planes.opacity = Number($("opacity").value);
    planes.draw();
  });
  $("key").addEventListener("change", () => {
    key = $("key").value.trim();
    sessionStorage.setItem("key", key);
    begin();
  });
  begin();
})();
