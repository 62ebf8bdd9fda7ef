"use strict";
// Pages on which people judge items one after the other: what they share. Answers stay in the
// browser after every change, and travel as a file; a page adds what is asked of an item.
const at = (id) => document.getElementById(id);
const spoken = (word) => word.replaceAll("_", " ");

// What is shown comes from reports and models: it enters the page as text, never as markup.
function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// Of a page:
//   items     each with an `id`, in the order in which they are shown
//   kind      of the answers: `readings`, `verdicts`; they stand under this name in the file
//   names     what tells one file from another, the person's name last: { study, reader }
//   done      a word for an item that is answered
//   isDone(item, answer), show(item, answer)
//   keys(), a map of what further keys do; remark(), what is odd about the item that is shown
//   address   where a server keeps the answers; none: the browser alone does
function answerForm({ items, kind, names, done, isDone, show, keys, remark, address }) {
  const key = `tumorchain-${kind}:${Object.values(names).join(":")}`;
  const known = new Set(items.map((item) => item.id));
  const answers = {};
  let place = 0;
  let saving = Promise.resolve();

  const item = () => items[place];
  const answer = () => answers[item().id] || {};
  const finished = (each) => isDone(each, answers[each.id] || {});
  const content = () => JSON.stringify({ format: 1, ...names, [kind]: answers }, null, 1);

  function tell(text) {
    const count = items.filter(finished).length;
    at("done").max = items.length;
    at("done").value = count;
    const words = [`${count} of ${items.length} ${done}.`, text, remark?.()];
    at("state").textContent = words.filter(Boolean).join(" ");
  }

  function keep() {
    try {
      localStorage.setItem(key, content());
      tell("Saved in this browser.");
    } catch (error) {
      tell(`This browser saves nothing: download the ${kind} before you close the page.`);
    }
    if (!address) return;
    const body = content();
    saving = saving.then(() => fetch(address, { method: "POST", body }))
      .then((reply) => tell(reply.ok ? "Saved." : "The server did not save it."))
      .catch(() => tell("The server is gone; saved in this browser."));
  }

  function take(text) {
    const file = JSON.parse(text);
    const same = Object.entries(names).every(([name, value]) => file[name] === value);
    if (file.format !== 1 || !same || typeof file[kind] !== "object") {
      throw new Error(`these are not ${kind} of this page (${Object.values(names).join(", ")}).`);
    }
    for (const [id, each] of Object.entries(file[kind])) {
      // Of what was saved here and elsewhere, the later counts.
      if (known.has(id) && (each.at || 0) >= (answers[id]?.at || 0)) answers[id] = each;
    }
  }

  function goTo(number) {
    place = Math.max(0, Math.min(items.length - 1, number));
    at("place").textContent = `${place + 1} of ${items.length}`;
    if (at("go")) at("go").value = place + 1;
    show(item(), answer());
    tell("");
    window.scrollTo(0, 0);
  }

  function nextOpen() {
    for (let step = 1; step <= items.length; step += 1) {
      const number = (place + step) % items.length;
      if (!finished(items[number])) return goTo(number);
    }
    tell(`All are ${done}: download the ${kind}.`);
  }

  function set(value) {
    answers[item().id] = { ...value, at: Date.now() };
    keep();
  }

  function download() {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([content()], { type: "application/json" }));
    link.download = `${kind}-${Object.values(names).at(-1)}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  at("back").onclick = () => goTo(place - 1);
  at("next").onclick = () => goTo(place + 1);
  at("open").onclick = nextOpen;
  at("save").onclick = download;
  if (at("go")) at("go").onchange = () => goTo(Number(at("go").value) - 1 || 0);
  at("load").onchange = async () => {
    try {
      take(await at("load").files[0].text());
      goTo(place);
      keep();
    } catch (error) {
      tell(`Not loaded: ${error.message}`);
    }
    at("load").value = "";  // the same file can be chosen again
  };
  document.onkeydown = (event) => {
    const typing = event.target.matches("textarea, input[type=number]");
    if (typing && event.key === "Escape") event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { arrowleft: () => goTo(place - 1), arrowright: () => goTo(place + 1) };
    const pressed = event.key.toLowerCase();
    const action = keys()[pressed] || moves[pressed];
    // A button that has the focus is pressed by Enter and space.
    if (!action || (event.target.matches("button, summary") && pressed === "enter")) return;
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
      const reply = address ? await fetch(address) : null;
      if (reply?.ok) take(await reply.text());
    } catch (error) {
      // The server has none yet.
    }
    for (const id of ["bar", "done", "item"]) at(id).hidden = false;
    const open = items.findIndex((each) => !finished(each));
    goTo(open < 0 ? 0 : open);
    tell(`What you do is saved ${address ? "on the server" : "in this browser"}.`);
  }

  return { item, answer, set, goTo, nextOpen, tell, begin, again: () => goTo(place), finished };
}
