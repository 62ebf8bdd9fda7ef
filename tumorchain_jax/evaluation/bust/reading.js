"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const key = `tumorchain-bust:${data.study}:${data.reader}`;
  const known = new Set(data.cases.map((each) => each.id));
  let readings = {};
  let place = 0;
  let here = 0;

  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const spoken = (word) => word.replaceAll("_", " ");
  const current = () => data.cases[place];
  // What readers agreed on stands in `agreed`; the arbiter is asked for the rest alone.
  const said = (item) => ({ ...item.agreed, ...readings[item.id] });
  const isAsked = (item, name) => !item.disputed || item.disputed.includes(name);
  const wanted = (item) => {
    const { finding } = said(item);
    return data.fields.filter((each) =>
      isAsked(item, each.name) && (!each.of || each.of === finding));
  };
  const needsChance = (item) => !item.disputed;
  const isDone = (item) => {
    const reading = said(item);
    const chance = reading.probability;
    return Boolean(readings[item.id])
      && wanted(item).every((each) => each.values.includes(reading[each.name]))
      && (reading.finding === "none") === (reading.category === "1")
      && (!needsChance(item) || (Number.isInteger(chance) && chance >= 0 && chance <= 100));
  };

  function content() {
    return JSON.stringify(
      { format: 1, study: data.study, reader: data.reader, readings }, null, 1
    );
  }

  function tell(text) {
    const done = data.cases.filter(isDone).length;
    at("done").max = data.cases.length;
    at("done").value = done;
    const reading = said(current());
    const clash = reading.category !== undefined && reading.finding !== undefined
      && (reading.finding === "none") !== (reading.category === "1");
    const remark = clash ? " Category 1 means no finding, and no finding means category 1." : "";
    at("state").textContent = `${done} of ${data.cases.length} read. ${text}${remark}`;
  }

  function keep() {
    try {
      localStorage.setItem(key, content());
      tell("Saved in this browser.");
    } catch (error) {
      tell("This browser saves nothing: download the readings before you close the page.");
    }
  }

  function take(text) {
    const file = JSON.parse(text);
    if (file.format !== 1 || file.study !== data.study || file.reader !== data.reader) {
      throw new Error("These are readings of another study or reader.");
    }
    for (const [id, reading] of Object.entries(file.readings)) {
      if (known.has(id) && (reading.at || 0) >= (readings[id]?.at || 0)) readings[id] = reading;
    }
  }

  function set(name, value) {
    const item = current();
    const reading = { ...readings[item.id], [name]: value, at: Date.now() };
    const full = { ...item.agreed, ...reading };
    for (const each of data.fields) {
      if (each.of && each.of !== full.finding) delete reading[each.name];
    }
    if (value === undefined) delete reading[name];
    readings[item.id] = reading;
    keep();
    draw();
  }

  function draw() {
    const item = current();
    const reading = said(item);
    const fields = wanted(item);
    here = Math.max(0, Math.min(fields.length - 1, here));
    const shown = fields.map((field, number) => {
      const box = element("fieldset", undefined, number === here ? "here" : "");
      box.append(element("legend", field.title));
      field.values.forEach((value, choice) => {
        const label = element("label");
        const input = element("input");
        input.type = "radio";
        input.name = field.name;
        input.checked = reading[field.name] === value;
        input.onchange = () => { here = number; set(field.name, value); };
        label.append(input, ` ${spoken(value)} `, element("kbd", String(choice + 1)));
        box.append(label);
      });
      const before = item.before?.[field.name];
      if (before) {
        const words = Object.entries(before).map(([who, what]) => `${who}: ${spoken(what || "-")}`);
        box.append(element("p", words.join("; "), "before"));
      }
      return box;
    });
    if (needsChance(item)) {
      const box = element("fieldset");
      box.append(element("legend", "Probability of malignancy, per cent"));
      const input = element("input");
      Object.assign(input, { type: "number", id: "chance", min: 0, max: 100, step: 1 });
      input.value = reading.probability ?? "";
      input.onchange = () => {
        const value = Number(input.value);
        const fits = input.value !== "" && Number.isInteger(value) && value >= 0 && value <= 100;
        set("probability", fits ? value : undefined);
      };
      box.append(input, " ", element("kbd", "P"));
      shown.push(box);
    }
    at("fields").replaceChildren(...shown);
  }

  function show(number) {
    place = Math.max(0, Math.min(data.cases.length - 1, number));
    here = 0;
    at("place").textContent = `${place + 1} of ${data.cases.length}`;
    at("picture").src = current().picture;
    draw();
    tell("");
  }

  function nextOpen() {
    const count = data.cases.length;
    for (let step = 1; step <= count; step += 1) {
      const number = (place + step) % count;
      if (!isDone(data.cases[number])) return show(number);
    }
    tell("All are read: download the readings.");
  }

  function download() {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([content()], { type: "application/json" }));
    link.download = `readings-${data.reader}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  at("back").onclick = () => show(place - 1);
  at("next").onclick = () => show(place + 1);
  at("open").onclick = nextOpen;
  at("save").onclick = download;
  at("fields").onsubmit = (event) => event.preventDefault();
  at("load").onchange = async () => {
    try {
      take(await at("load").files[0].text());
      keep();
      show(place);
    } catch (error) {
      tell(`Not loaded: ${error.message}`);
    }
  };

  function choose(number) {
    const field = wanted(current())[here];
    if (!field || number >= field.values.length) return;
    here += 1;
    set(field.name, field.values[number]);
  }

  document.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input[type=number]");
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const actions = {
      ArrowLeft: () => show(place - 1),
      ArrowRight: () => show(place + 1),
      ArrowUp: () => { here -= 1; draw(); },
      ArrowDown: () => { here += 1; draw(); },
      p: () => at("chance")?.focus(),
    };
    const action = /^[1-9]$/.test(event.key)
      ? () => choose(Number(event.key) - 1) : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };

  try {
    const saved = localStorage.getItem(key);
    if (saved) take(saved);
  } catch (error) {
    // Nothing, or nothing usable, was saved here.
  }
  for (const id of ["bar", "done", "item"]) at(id).hidden = false;
  const first = data.cases.findIndex((each) => !isDone(each));
  show(first < 0 ? 0 : first);
})();
