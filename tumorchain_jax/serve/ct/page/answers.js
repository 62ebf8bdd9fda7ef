"use strict";
// The cards of questions and answers: rounds as they are written, the answer, two side by side.
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function button(text, action) {
  const made = element("button", text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

function save(content, type, name) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

class Card {
  // `jump` goes to an organ: label, box; `report` fetches the report of an id, as text.
  constructor(question, scan, organs, { jump, report }) {
    Object.assign(this, { question, scan, organs, jump, report, rounds: [], live: null });
    this.body = element("article");
    this.body.append(element("h2", question, "text"), element("p", scan.filename, "behind"));
  }

  // Some text of a round that is being written.
  token(delta) {
    if (!this.live) {
      const made = element("div", undefined, "round writing");
      this.live = element("p", "", "text");
      made.append(element("h3", `Round ${delta.number}`), this.live);
      this.rounds.push(made);
      this.body.append(made);
    }
    this.live.append(delta.reasoning_content);
  }

  // A round that is written. Its text is data: the words that name organs become buttons.
  round(round) {
    const made = element("div", undefined, "round");
    made.append(element("h3", `Round ${round.number}`), this.text(round));
    const looked = round.organs.filter((organ) => organ.outcome === "looked_at");
    if (looked.length) {
      const names = looked.map((o) => this.organs.get(o.label)?.name ?? o.organ).join(", ");
      made.append(element("p", `Looked again at: ${names}`, "behind"));
      this.jump(looked[0].label, looked[0].box_mm);
    }
    if (this.live) this.rounds.pop().replaceWith(made);
    else this.body.append(made);
    this.live = null;
    this.rounds.push(made);
  }

  text(round) {
    const text = element("p", undefined, "text");
    const letters = [...round.text];  // spans count characters, not UTF-16 units
    let done = 0;
    const named = [...round.organs].sort((a, b) => a.span[0] - b.span[0] || b.span[1] - a.span[1]);
    for (const organ of named) {
      const [start, end] = organ.span;
      if (start < done || end <= start) continue;
      text.append(letters.slice(done, start).join(""));
      const words = letters.slice(start, end).join("");
      const known = this.organs.get(organ.label);
      if (known) {
        const made = button(words, () => this.jump(organ.label, organ.box_mm));
        made.title = `${known.name}: ${organ.outcome.replaceAll("_", " ")}. Show it`;
        made.style.setProperty("--organ", `rgb(${known.colour.join()})`);
        text.append(made);
      } else text.append(words);
      done = end;
    }
    text.append(letters.slice(done).join(""));
    return text;
  }

  // The chain begins again, with another organ segmented.
  again() {
    for (const each of this.rounds.splice(0)) each.remove();
    this.live = null;
  }

  conclude(metadata) {
    this.metadata = metadata;
    const title = metadata.answered ? "Model's answer" : "No answer";
    const className = metadata.answered ? "answer text" : "answer withheld text";
    this.body.append(element("p", title, "behind"), element("p", metadata.headline, className));
    const behind = [`${metadata.confidence.text}; ${metadata.evaluation.text}.`];
    if (!metadata.answered) {
      behind.unshift(`The model's text, not to be relied on: ${metadata.conclusion}`);
    }
    for (const line of behind) this.body.append(element("p", line, "behind"));
    if (metadata.warnings.length) {
      const more = element("details");
      const count = metadata.warnings.length;
      more.append(element("summary", `${count} warning${count === 1 ? "" : "s"}`, "behind"));
      for (const line of metadata.warnings) more.append(element("p", line, "behind"));
      this.body.append(more);
    }
    const tools = element("div", undefined, "card-tools");
    const report = button("Save the report", async () => {
      report.disabled = true;
      try {
        save(await this.report(metadata.report_id), "text/html", "report.html");
      } catch (error) {
        this.fail(error.message);
      }
      report.disabled = false;
    });
    const values = JSON.stringify(metadata, null, 1);
    tools.append(report, button("Save as JSON", () => save(values, "application/json", "answer.json")));
    this.compare = button("Compare", () => this.onCompare(this));
    this.compare.setAttribute("aria-pressed", "false");
    tools.append(this.compare);
    this.body.append(tools);
  }

  fail(text) {
    this.body.append(element("p", text, "bad"));
  }
}

// Chooses two answers about one scan and shows them side by side.
class Comparison {
  constructor(cards, told) {
    Object.assign(this, { cards, told, chosen: [] });
  }

  add(card) {
    this.clear();
    card.onCompare = (each) => this.choose(each);
    this.cards.prepend(card.body);
  }

  choose(card) {
    if (this.chosen.includes(card)) this.chosen = this.chosen.filter((each) => each !== card);
    else {
      this.chosen = this.chosen.filter((each) => each.scan.id === card.scan.id).slice(-1);
      this.chosen.push(card);
    }
    this.show();
  }

  clear() {
    this.chosen = [];
    this.show();
  }

  show() {
    const two = this.chosen.length === 2;
    this.cards.classList.toggle("comparing", two);
    for (const each of this.cards.children) each.classList.remove("compared");
    for (const each of document.querySelectorAll(".card-tools [aria-pressed]")) {
      each.setAttribute("aria-pressed", "false");
    }
    for (const each of this.chosen) {
      each.body.classList.add("compared");
      each.compare.setAttribute("aria-pressed", "true");
    }
    this.told.textContent = two ? this.difference()
      : this.chosen.length ? "Choose another answer about the same scan to compare with." : "";
  }

  difference() {
    const shown = [...this.cards.children];  // the first is the one that is seen first
    const order = [...this.chosen].sort((x, y) => shown.indexOf(x.body) - shown.indexOf(y.body));
    const [a, b] = order.map((each) => each.metadata);
    const same = a.headline === b.headline ? "the same answer" : "different answers";
    const only = (one, other) =>
      one.organs_looked_at.filter((organ) => !other.organs_looked_at.includes(organ));
    const parts = [[a, b], [b, a]].map(([one, other], n) => {
      const names = only(one, other).map((organ) => organ.replaceAll("_", " "));
      return names.length ? `looked at in ${n ? "the second" : "the first"} alone: ${names.join(", ")}` : "";
    }).filter(Boolean);
    return `Compared: ${[same, ...parts].join("; ")}.`;
  }
}
