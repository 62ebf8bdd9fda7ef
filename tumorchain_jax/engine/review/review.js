(() => {
  const data = JSON.parse(at("data").textContent);
  const last = (item) => item.rounds[item.rounds.length - 1].text;
  const isDone = (_, verdict) => verdict.usable === false || Boolean(verdict.quality);

  function marked(item, number, text) {
    const shown = element("p", undefined, "behind free-text report-text");
    let done = 0;
    for (const [which, start, end] of item.marks) {
      if (which !== number || start < done) continue;
      shown.append(text.slice(done, start), element("mark", text.slice(start, end)));
      done = end;
    }
    shown.append(text.slice(done));
    return shown;
  }

  function show(item, verdict) {
    at("what").textContent =
      `record ${item.id}, ${spoken(item.task)}: ${spoken(item.subtask)}, scan ${item.scan}`;
    at("question").textContent = item.question;
    at("answer").textContent = item.answer;
    at("choices").replaceChildren(...item.choices.map((each) => element("li", each)));
    at("rounds").replaceChildren(...item.rounds.flatMap((round, index) => {
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
    at("reports").replaceChildren(...item.documents.map((index) => {
      const report = data.documents[index];
      const section = element("section", undefined, "statement");
      section.append(element("h2", report.kind), marked(item, index, report.text));
      return section;
    }));
    for (const input of document.querySelectorAll(".verdict input")) {
      const value = input.name === "usable" ? { yes: true, no: false }[input.value] : input.value;
      input.checked = verdict[input.name] === value;
    }
    at("qualities").disabled = verdict.usable !== true;
    at("note").value = verdict.note || "";
    at("text").value = verdict.text ?? last(item);
    at("corrected").value = verdict.answer ?? item.answer;
    at("correction").open = verdict.text !== undefined || verdict.answer !== undefined;
  }

  function set(change) {
    const verdict = { ...form.answer(), ...change };
    if (verdict.usable !== true) delete verdict.quality;
    for (const name of Object.keys(verdict)) {
      if (verdict[name] === undefined || verdict[name] === "") delete verdict[name];
    }
    form.set(verdict);
  }

  function judge(change) {
    set(change);
    form.again();
    if (form.finished(form.item())) form.nextOpen();
  }

  const other = (value, own) => (value === own ? undefined : value);
  for (const input of document.querySelectorAll("[name=usable]")) {
    input.onchange = () => judge({ usable: input.value === "yes" });
  }
  for (const input of document.querySelectorAll("[name=quality]")) {
    input.onchange = () => judge({ quality: input.value });
  }
  at("note").oninput = () => set({ note: at("note").value });
  at("text").oninput = () => set({ text: other(at("text").value, last(form.item())) });
  at("corrected").oninput = () =>
    set({ answer: other(at("corrected").value, form.item().answer) });
  at("undo").onclick = () => {
    set({ text: undefined, answer: undefined });
    form.again();
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
  };
  const { sample, reviewer } = data;
  const form = answerForm({
    items: data.items, kind: "verdicts", names: { sample, reviewer }, done: "judged",
    isDone, show, keys: () => keys,
    address: location.protocol.startsWith("http") ? "verdicts" : "",
  });
  form.begin();
})();
