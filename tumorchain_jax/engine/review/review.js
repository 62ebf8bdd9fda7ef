"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const key = `tumorchain-review:${data.sample}:${data.reviewer}`;
  const served = location.protocol.startsWith("http");
  const known = new Set(data.items.map((item) => item.id));
  let verdicts = {};
  let place = 0;

  // What is shown comes from reports and models: it enters the page as text, never as markup.
  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const spoken = (word) => word.replaceAll("_", " ");
  const item = () => data.items[place];
  const isDone = (id) => {
    const verdict = verdicts[id];
    return Boolean(verdict) && (verdict.usable === false || Boolean(verdict.quality));
  };

  function content() {
    return JSON.stringify(
      { format: 1, sample: data.sample, reviewer: data.reviewer, verdicts }, null, 1
    );
  }

  function tell(text) {
    const done = data.items.filter((each) => isDone(each.id)).length;
    at("done").max = data.items.length;
    at("done").value = done;
    at("state").textContent = `${done} of ${data.items.length} judged. ${text}`;
  }

  let saving = Promise.resolve();
  function keep() {
    try {
      localStorage.setItem(key, content());
      tell("Saved in this browser.");
    } catch (error) {
      tell("This browser saves nothing: download the verdicts before you close the page.");
    }
    if (!served) return;
    const body = content();
    saving = saving.then(() => fetch("verdicts", { method: "POST", body }))
      .then((answer) => tell(answer.ok ? "Saved." : "The server did not save it."))
      .catch(() => tell("The server is gone; saved in this browser."));
  }

  function take(text) {
    const file = JSON.parse(text);
    if (file.format !== 1 || file.sample !== data.sample || file.reviewer !== data.reviewer) {
      throw new Error("These are verdicts of another sample or reviewer.");
    }
    for (const [id, verdict] of Object.entries(file.verdicts)) {
      // Of what was saved here and elsewhere, the later verdict counts.
      if (known.has(id) && (verdict.at || 0) >= (verdicts[id]?.at || 0)) verdicts[id] = verdict;
    }
  }

  function marked(number, text) {
    const shown = element("p", undefined, "behind free-text report-text");
    let done = 0;
    for (const [which, start, end] of item().marks) {
      if (which !== number || start < done) continue;
      shown.append(text.slice(done, start), element("mark", text.slice(start, end)));
      done = end;
    }
    shown.append(text.slice(done));
    return shown;
  }

  function show(number) {
    place = Math.max(0, Math.min(data.items.length - 1, number));
    const each = item();
    const verdict = verdicts[each.id] || {};
    at("place").textContent = `${place + 1} of ${data.items.length}`;
    at("go").value = place + 1;
    at("what").textContent =
      `record ${each.id}, ${spoken(each.task)}: ${spoken(each.subtask)}, scan ${each.scan}`;
    at("question").textContent = each.question;
    at("answer").textContent = each.answer;
    at("choices").replaceChildren(...each.choices.map((choice) => element("li", choice)));
    at("rounds").replaceChildren(...each.rounds.flatMap((round, index) => {
      const card = element("li", undefined, "round");
      const article = element("article");
      article.append(
        element("h3", `Round ${index + 1}${round.given ? " (an error to recover from)" : ""}`),
        element("p", round.text, "free-text")
      );
      card.append(article);
      const looked = element("li", `looks again at: ${round.look_at}`, "link");
      return round.look_at ? [looked, card] : [card];
    }));
    at("reports").replaceChildren(...each.documents.map((index) => {
      const report = data.documents[index];
      const section = element("section", undefined, "statement");
      section.append(element("h2", report.kind), marked(index, report.text));
      return section;
    }));
    for (const input of document.querySelectorAll(".verdict input")) {
      const value = input.name === "usable" ? { yes: true, no: false }[input.value] : input.value;
      input.checked = verdict[input.name] === value;
    }
    at("qualities").disabled = verdict.usable !== true;
    at("note").value = verdict.note || "";
    at("text").value = verdict.text ?? each.rounds[each.rounds.length - 1].text;
    at("corrected").value = verdict.answer ?? each.answer;
    at("correction").open = verdict.text !== undefined || verdict.answer !== undefined;
    window.scrollTo(0, 0);
  }

  function set(change) {
    const verdict = { ...verdicts[item().id], ...change, at: Date.now() };
    if (verdict.usable !== true) delete verdict.quality;
    for (const name of Object.keys(verdict)) {
      if (verdict[name] === undefined || verdict[name] === "") delete verdict[name];
    }
    verdicts[item().id] = verdict;
    keep();
  }

  function judge(change) {
    set(change);
    show(place);
    if (isDone(item().id)) nextOpen();
  }

  function nextOpen() {
    const count = data.items.length;
    for (let step = 1; step <= count; step += 1) {
      const number = (place + step) % count;
      if (!isDone(data.items[number].id)) return show(number);
    }
    tell("All are judged: download the verdicts.");
  }

  function download() {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([content()], { type: "application/json" }));
    link.download = `verdicts-${data.reviewer}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  at("back").onclick = () => show(place - 1);
  at("next").onclick = () => show(place + 1);
  at("open").onclick = nextOpen;
  at("save").onclick = download;
  at("go").onchange = () => show(Number(at("go").value) - 1 || 0);
  at("load").onchange = async () => {
    try {
      take(await at("load").files[0].text());
      keep();
      show(place);
    } catch (error) {
      tell(`Not loaded: ${error.message}`);
    }
  };
  for (const input of document.querySelectorAll("[name=usable]")) {
    input.onchange = () => judge({ usable: input.value === "yes" });
  }
  for (const input of document.querySelectorAll("[name=quality]")) {
    input.onchange = () => judge({ quality: input.value });
  }
  at("note").oninput = () => set({ note: at("note").value });
  const last = () => item().rounds[item().rounds.length - 1].text;
  at("text").oninput = () =>
    set({ text: at("text").value === last() ? undefined : at("text").value });
  at("corrected").oninput = () =>
    set({ answer: at("corrected").value === item().answer ? undefined : at("corrected").value });
  at("undo").onclick = () => {
    set({ text: undefined, answer: undefined });
    show(place);
  };

  const keys = {
    u: () => judge({ usable: true }),
    x: () => judge({ usable: false }),
    1: () => judge({ usable: true, quality: "high" }),
    2: () => judge({ usable: true, quality: "acceptable" }),
    3: () => judge({ usable: true, quality: "poor" }),
    n: () => at("note").focus(),
    e: () => {
      at("correction").open = true;
      at("text").focus();
    },
    arrowleft: () => show(place - 1),
    arrowright: () => show(place + 1),
  };
  document.onkeydown = (event) => {
    const typing = event.target.matches("textarea, input[type=number]");
    if (typing && event.key === "Escape") event.target.blur();
    const action = keys[event.key.toLowerCase()];
    if (typing || !action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  };

  async function begin() {
    try {
      const saved = localStorage.getItem(key);
      if (saved) take(saved);
    } catch (error) {
      // Nothing, or nothing usable, was saved here.
    }
    try {
      const answer = served ? await fetch("verdicts") : null;
      if (answer && answer.ok) take(await answer.text());
    } catch (error) {
      // The server has none yet.
    }
    for (const id of ["bar", "done", "item"]) at(id).hidden = false;
    const open = data.items.findIndex((each) => !isDone(each.id));
    show(open < 0 ? 0 : open);
    tell(served ? "Verdicts are saved on the server." : "Verdicts are saved in this browser.");
  }
  begin();
})();
