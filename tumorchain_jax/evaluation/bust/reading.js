(() => {
  const data = JSON.parse(at("data").textContent);
  let here = 0;

  // What readers agreed on stands in `agreed`; the arbiter is asked for the rest alone.
  const whole = (item, reading) => ({ ...item.agreed, ...reading });
  const isAsked = (item, name) => !item.disputed || item.disputed.includes(name);
  const wanted = (item, reading) => data.fields.filter((field) =>
    isAsked(item, field.name)
    && (!field.of || field.of.includes(whole(item, reading).finding)));
  const needsChance = (item) => !item.disputed;
  const isChance = (value) => Number.isInteger(value) && value >= 0 && value <= 100;
  const clashes = ({ finding, category }) => finding !== undefined && category !== undefined
    && (finding === "none") !== (category === "1");

  function isDone(item, reading) {
    const full = whole(item, reading);
    return Object.keys(reading).length > 0 && !clashes(full)
      && wanted(item, reading).every((field) => field.values.includes(full[field.name]))
      && (!needsChance(item) || isChance(full.probability));
  }

  function set(name, value) {
    const item = form.item();
    const reading = { ...form.answer(), [name]: value };
    const asked = new Set(wanted(item, reading).map((field) => field.name));
    for (const { name: each } of data.fields) {
      if (!asked.has(each)) delete reading[each];
    }
    if (value === undefined) delete reading[name];
    form.set(reading);
    draw();
  }

  function choice(field, number, reading) {
    const box = element("fieldset", undefined, number === here ? "here" : "");
    box.append(element("legend", field.title));
    field.values.forEach((value, count) => {
      const label = element("label");
      const input = element("input");
      Object.assign(input, { type: "radio", name: field.name });
      input.checked = reading[field.name] === value;
      input.onchange = () => { here = number + 1; set(field.name, value); };
      label.append(input, ` ${spoken(value)} `, element("kbd", String(count + 1)));
      box.append(label);
    });
    const before = form.item().before?.[field.name];
    if (before) {
      const words = Object.entries(before).map(([who, what]) => `${who}: ${spoken(what || "-")}`);
      box.append(element("p", words.join("; "), "before"));
    }
    return box;
  }

  function chance(number, reading) {
    const box = element("fieldset", undefined, number === here ? "here" : "");
    box.append(element("legend", "Probability of malignancy, per cent"));
    const input = element("input");
    Object.assign(input, { type: "number", id: "chance", min: 0, max: 100, step: 1 });
    input.setAttribute("aria-label", "Probability of malignancy, per cent");
    input.value = reading.probability ?? "";
    let stored = reading.probability;
    const store = () => {
      const value = input.value === "" ? undefined : Number(input.value);
      if (value === stored) return;
      stored = value;
      set("probability", isChance(value) ? value : undefined);
      if (!isChance(value)) form.tell("A probability is a whole number from 0 to 100.");
    };
    input.onchange = store;
    input.onwheel = () => input.blur();
    input.onkeydown = (event) => {
      // Up and down would change the number.
      if (!["Enter", "ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault();
      store();
      if (event.key === "Enter") return forward();
      here += event.key === "ArrowUp" ? -1 : 0;
      draw();
    };
    box.append(input, " ", element("kbd", "P"));
    return box;
  }

  function draw() {
    const item = form.item();
    const reading = whole(item, form.answer());
    const fields = wanted(item, form.answer());
    const last = fields.length - (needsChance(item) ? 0 : 1);
    here = Math.max(0, Math.min(last, here));
    const shown = fields.map((field, number) => choice(field, number, reading));
    if (needsChance(item)) shown.push(chance(fields.length, reading));
    at("fields").replaceChildren(...shown);
    shown[here]?.scrollIntoView({ block: "nearest" });
    if (needsChance(item) && here === last) at("chance").focus({ preventScroll: true });
  }

  function show(item, reading) {
    // Where it was left; a complete case shows its beginning.
    here = wanted(item, reading).findIndex((field) => !field.values.includes(reading[field.name]));
    at("picture").src = item.picture;
    draw();
  }

  // The next open case, once this one is complete.
  function forward() {
    if (form.finished(form.item())) form.nextOpen();
    else form.tell("Not complete yet.");
  }

  function choose(number) {
    const field = wanted(form.item(), form.answer())[here];
    if (!field || number >= field.values.length) return;
    here += 1;
    set(field.name, field.values[number]);
  }

  function keys() {
    const numbers = Array.from({ length: 9 }, (_, n) => [String(n + 1), () => choose(n)]);
    return {
      ...Object.fromEntries(numbers),
      arrowup: () => { here -= 1; draw(); },
      arrowdown: () => { here += 1; draw(); },
      p: () => at("chance")?.focus(),
      enter: forward,
    };
  }

  function remark() {
    const clash = clashes(whole(form.item(), form.answer()));
    return clash ? "Category 1 means no finding, and no finding means category 1." : "";
  }

  const { study, reader, cases } = data;
  const form = answerForm({
    items: cases, kind: "readings", names: { study, reader }, done: "read",
    isDone, show, keys, remark,
  });
  at("fields").onsubmit = (event) => event.preventDefault();
  form.begin();
})();
