"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const viewer = new Viewer($("planes"), $("tools"), {
    onMove: (at) => {
      const slices = at.map((value) => value + 1).join(", ");
      $("point").textContent = `Slices ${slices}: about ${Math.round(viewer.hu())} HU`;
    },
  });
  const comparison = new Comparison($("answers"), $("compared"));
  let model = "", scan = null, organs = new Map(), running = null, opened = 0;
  let key = sessionStorage.getItem("key") || "";

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
    const turn = ++opened; // of several scans the last one that was asked for is shown
    $("send").disabled = true;
    try {
      const file = await get_file();
      if (turn !== opened) return;
      say(`${file.filename}: reading it and finding its organs …`);
      const info = await (await get(`v1/scans/${file.id}`)).json();
      const [greys, labels] = await Promise.all(["greys", "labels"].map(async (what) =>
        new Uint8Array(await (await get(`v1/scans/${file.id}/${what}`)).arrayBuffer())));
      if (turn !== opened) return;
      scan = file;
      show(info, greys, labels);
      const less = info.reduced ? "; the picture is coarser than the scan" : "";
      say(`${file.filename}: ${info.organs.length} organs found${less}`);
      $("send").disabled = false;
    } catch (error) {
      if (turn !== opened) return;
      say(error.message, true);
      $("send").disabled = scan === null;
    }
  }

  function show(info, greys, labels) {
    $("viewer").hidden = false;
    viewer.load(info, greys, labels);
    organs = new Map(info.organs.map((organ) => [organ.label, organ]));
    $("organs").replaceChildren(...viewer.organButtons(mark));
    mark();
  }

  function mark() {
    for (const each of $("organs").children) {
      each.setAttribute("aria-pressed", String(viewer.shown.has(Number(each.dataset.label))));
    }
  }

  function jump(label, box) {
    viewer.jump(label, box);
    mark();
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
    let rest = "";
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
        if (delta.type === "token") card.token(delta);
        else if (delta.type === "round") card.round(delta.round);
        else if (delta.type === "again") card.again();
        if (values.metadata) card.conclude(values.metadata);
      }
    }
  }

  $("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = $("question").value.trim();
    if (!question || !scan || running) return;
    const asked = scan;
    const card = new Card(question, asked, organs, {
      // Another scan may have been opened since.
      jump: (label, box) => { if (scan === asked) jump(label, box); },
      report: async (id) => (await get(`v1/reports/${id}`)).text(),
    });
    comparison.add(card);
    running = new AbortController();
    $("send").disabled = true;
    $("stop").hidden = false;
    try {
      await ask(question, card, running.signal);
    } catch (error) {
      const text = error.name === "AbortError" ? "stopped" : error.message;
      card.fail(text);
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
  $("key").addEventListener("change", () => {
    key = $("key").value.trim();
    sessionStorage.setItem("key", key);
    begin();
  });
  begin();
})();
