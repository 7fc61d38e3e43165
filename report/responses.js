// responses shows the sampled responses by problem. It returns the function that the
// buttons of the findings and of the heat map call.
const responses = (data, $, el) => {
  const bar = $("rollout-bar"), sets = data.rollouts || [];
  const labelled = (text, control) => {
    const l = el("label", "", text + " ");
    l.append(control);
    bar.append(l);
    return control;
  };
  const options = (s, list) => s.replaceChildren(...list.map(([value, text]) => {
    const o = el("option", "", text);
    o.value = value;
    return o;
  }));
  const select = (text, list) => {
    const s = labelled(text, el("select"));
    options(s, list);
    s.onchange = () => list_(s);
    return s;
  };
  const input = (text, type, width) => {
    const i = labelled(text, el("input"));
    i.type = type;
    i.style.width = width;
    let later;
    i.oninput = () => { clearTimeout(later); later = setTimeout(list_, 120); };
    return i;
  };
  const colours = {
    logp: ["log-prob when sampled", "Stronger: less likely when it was sampled."],
    delta: ["log-ratio at the update", "Blue: more likely at the update than when it was sampled. Red: less."],
    w: ["gradient weight", "Blue: the update makes it more likely. Red: less likely. Relative to the heaviest token."],
  };
  const heaviest = (r) => (r.w || []).reduce((m, x) => Math.max(m, Math.abs(x || 0)), 0);
  // turns returns the parts of a response by author; size counts the tokens of the policy.
  const turns = (r) => r.turns || [{ author: "policy", from: 0, to: r.tokens.length }];
  const own = (r) => turns(r).filter((t) => t.author === "policy");
  const size = (r) => own(r).reduce((n, t) => n + (r.logp ? t.to - t.from : r.tokens.slice(t.from, t.to).join("").length), 0);
  const orders = {
    problem: ["problem", null],
    weight: ["largest weight", (r) => heaviest(r)],
    advantage: ["highest advantage", (r) => r.advantage],
    against: ["lowest advantage", (r) => -r.advantage],
    long: ["longest", (r) => size(r)],
    short: ["shortest", (r) => -size(r)],
  };
  const problemOf = (set, r) => (set.problems || [])[r.at] || { prompt: "", gold: [] };
  const words = (set, r) => {
    const q = problemOf(set, r);
    return r.words ??= [q.id, q.source || "", q.text || q.prompt, r.tokens.join("")].join("\n").toLowerCase();
  };
  let run, round, search, verdict, least, most, order, colour;

  const chosen = (set) => {
    const text = search.value.toLowerCase(), by = orders[order.value][1];
    const low = least.value === "" ? -Infinity : Number(least.value), high = most.value === "" ? Infinity : Number(most.value);
    const list = set.list.filter((r) => (round.value === "all" || problemOf(set, r).round === Number(round.value)) &&
      (verdict.value === "all" || (verdict.value === "truncated" ? r.truncated : r.verdict === verdict.value)) &&
      (r.reward === null || (r.reward >= low && r.reward <= high)) && (!text || words(set, r).includes(text)));
    if (by) { const key = new Map(list.map((r) => [r, by(r)])); list.sort((a, b) => key.get(b) - key.get(a)); }
    // The responses to a problem stay together: the problem of the first response comes first.
    const groups = new Map();
    for (const r of list) groups.has(r.at) ? groups.get(r.at).push(r) : groups.set(r.at, [r]);
    return [list.length, [...groups.values()]];
  };
  const list_ = (from) => {
    const set = sets[run.value];
    if (from === run) {
      const rounds = [...new Set((set.problems || []).map((q) => q.round))].sort((a, b) => a - b);
      options(round, [...rounds.map((n) => [n, "round " + n]), ["all", "all rounds"]]);
      round.value = rounds.length ? rounds[rounds.length - 1] : "all";
    }
    const [n, groups] = chosen(set), by = colour.value;
    $("rollout-note").textContent = `${n} of ${set.list.length} responses kept for this report, to ${groups.length} problems. ${by ? colours[by][1] : ""}`;
    const page = 50;
    const append = (begin) => {
      let end = begin, shown = 0;
      for (; end < groups.length && shown < page; end++) {
        shown += groups[end].length;
        $("rollout-list").append(problemSection(set, groups[end], by));
      }
      if (end < groups.length) {
        const more = el("button", "", `Show more (${groups.length - end} problems left)`);
        more.type = "button";
        more.onclick = () => { more.remove(); append(end); };
        $("rollout-list").append(more);
      }
    };
    $("rollout-list").replaceChildren();
    append(0);
    if (!n) $("rollout-list").append(el("p", "note", "None among the responses kept for this report; rollouts/ in the run folder has all of them."));
  };
  const problemSection = (set, list, by) => {
    const q = problemOf(set, list[0]), section = el("section", "card problem"), head = el("div", "head");
    if (q.judged) {
      const rate = el("meter");
      rate.max = q.judged;
      rate.value = q.right;
      rate.title = `${q.right} of ${q.judged} right`;
      head.append(rate, el("span", "rate", `${q.right} of ${q.judged} right`));
    }
    head.append(el("h3", "", q.id || "problem"), el("span", "", `round ${q.round}`), el("span", "", `mean reward ${show(q.reward)}`),
      el("span", "", `expected ${(q.gold || []).join(" or ") || "nothing"}`));
    if (q.source) head.append(el("span", "", `from ${q.source}`));
    if (list.length < q.all) head.append(el("span", "", `${list.length} of ${q.all} responses shown`));
    section.append(head, el("pre", "prompt", q.prompt));
    if (q.tokens) {
      const d = el("details"), ids = q.ids || [];
      d.append(el("summary", "", `The prompt as the model saw it: ${q.tokens} tokens`), el("pre", "", q.text || q.prompt),
        el("pre", "ids", ids.join(" ") + (ids.length < q.tokens ? ` and ${q.tokens - ids.length} more` : "")));
      section.append(d);
    }
    for (const r of list) section.append(responseCard(r, by));
    return section;
  };
  const responseCard = (r, by) => {
    const card = el("div", "rollout"), head = el("div", "head");
    head.append(el("span", "verdict " + r.verdict, r.verdict === "wrong" && r.truncated ? "truncated" : r.verdict),
      el("span", "", `answer ${r.answer || "none"}`), el("span", "", `reward ${show(r.reward)}`), el("span", "", `advantage ${show(r.advantage)}`));
    if (r.logp) head.append(el("span", "", `${size(r)} tokens` + (r.turns ? ` in ${own(r).length} turns` : "")));
    if (r.part) head.append(el("span", "", "an earlier history of an episode"));
    if (r.w) head.append(el("span", "", `largest weight ${show(heaviest(r))}`));
    if (r.reason) head.append(el("span", "", `judged as ${r.reason}`));
    card.append(head, ...turns(r).map((t) => t.author === "policy" ? written(r, t, by) : answered(r, t)));
    return card;
  };
  // answered shows an answer of the environment, folded behind its beginning.
  const answered = (r, t) => {
    const d = el("details", "answered"), text = r.tokens.slice(t.from, t.to).join(""), begin = text.trim().slice(0, 60);
    d.append(el("summary", "", `${t.author}: ${begin}${begin.length < text.trim().length ? " ..." : ""}`), el("pre", "", text));
    return d;
  };
  // written shows the tokens of a turn of the policy, coloured, and the reward of the turn.
  const written = (r, t, by) => {
    const pre = el("pre", r.turns ? "policy" : ""), values = by ? r[by] : null, largest = by === "w" && values ? Math.max(heaviest(r), 1e-12) : 1;
    r.tokens.slice(t.from, t.to).forEach((text, k) => {
      const i = t.from + k, special = values && i === t.to - 1 && /^<.*>$/.test(text.trim()) && text.trim().length > 2;
      const span = el("span", special ? "token end" : "token", text);
      if (values) {
        const v = values[i];
        let strength, hue;
        if (by === "logp") {
          strength = 1 - Math.exp(Math.max(v, -8));
          hue = "224,123,57";
        } else {
          const signed = by === "w" ? -v / largest : v / 0.4;
          strength = Math.min(1, Math.abs(signed));
          hue = signed > 0 ? "59,130,196" : "209,73,91";
        }
        if (strength > 0.01) span.style.background = `rgba(${hue},${(0.08 + 0.62 * strength).toFixed(3)})`;
        span.title = `${JSON.stringify(text)}\nlog-prob ${show(r.logp[i])} (p = ${show(Math.exp(r.logp[i]))})` +
          (r.delta ? `\nlog-ratio ${show(r.delta[i])}` : "") + (r.w ? `\nweight ${show(r.w[i])}` : "");
      }
      pre.append(span);
    });
    if (t.reward !== undefined) pre.append(el("span", "earned", `reward ${show(t.reward)}`));
    return pre;
  };

  if (!sets.length) {
    $("rollout-note").textContent = "The run folders have no rollouts as yet.";
    if (data.supervised) document.querySelectorAll('#rollouts, nav a[href="#rollouts"]').forEach((e) => e.remove());
    return () => {};
  }
  run = select("Run", sets.map((s, i) => [i, s.run]));
  run.parentElement.hidden = sets.length === 1;
  round = select("Round", []);
  search = input("Search", "search", "16em");
  search.placeholder = "prompt or response";
  verdict = select("Verdict", ["all", "wrong", "right", "truncated", "unknown"].map((v) => [v, v]));
  least = input("Reward from", "number", "5em");
  most = input("to", "number", "5em");
  for (const i of [least, most]) i.step = "any";
  order = select("Order", Object.entries(orders).map(([k, [text]]) => [k, text]));
  const has = Object.keys(colours).filter((k) => sets.some((s) => s.list.some((r) => r[k])));
  colour = select("Colour", [...has.map((k) => [k, colours[k][0]]), ["", "none"]]);
  if (has.length) colour.value = has.includes("w") ? "w" : has[has.length - 1];
  list_(run);
  return (at, wanted) => {
    run.value = at;
    list_(run);
    search.value = wanted.search || "";
    verdict.value = wanted.verdict || "all";
    if (wanted.search) round.value = "all";
    least.value = most.value = "";
    list_();
    $("rollouts").scrollIntoView();
  };
};

// heatMaps draws the pass rate of problems over rounds, as tables.
const heatMaps = (data, $, el, showResponses) => {
  const maps = data.heat || [];
  if (!maps.length) return;
  $("heat").hidden = false;
  const draw = (m) => {
    $("heat-note").textContent = `${m.rows.length} of the ${m.again} problems that came in more than one round, from the hardest to the easiest` +
      (m.rows.length < m.again ? ", evenly" : "") + `. The darker, the more of the responses are right.` +
      (m.read < m.rounds ? ` ${m.read} of ${m.rounds} rounds were read.` : "") + " A click on a problem shows its responses.";
    const table = el("table", "heat"), head = el("tr"), body = el("tbody"), thead = el("thead");
    head.append(el("th", "text", "problem"), ...m.columns.map((c, i) => {
      // The first and the last column show their rounds, the others on demand.
      const th = el("th", "", i === 0 || i === m.columns.length - 1 || m.columns.length <= 8 ? c : "");
      th.title = "rounds " + c;
      th.scope = "col";
      return th;
    }));
    thead.append(head);
    for (const row of m.rows) {
      const tr = el("tr"), name = el("th", "text"), b = el("button", "link", row.prompt || row.id);
      b.type = "button";
      b.title = row.id;
      name.scope = "row";
      b.onclick = () => {
        const at = (data.rollouts || []).findIndex((s) => s.run === m.run);
        if (at >= 0) showResponses(at, { search: row.id });
      };
      name.append(b);
      tr.append(name, ...row.cells.map(([right, judged], i) => {
        const td = el("td");
        if (judged) {
          const rate = right / judged;
          td.style.background = `color-mix(in srgb, var(--good) ${Math.round(8 + 92 * rate)}%, var(--none))`;
          td.title = `rounds ${m.columns[i]}: ${right} of ${judged} right`;
          td.append(el("span", "hidden", `${right}/${judged}`));
        }
        return td;
      }));
      body.append(tr);
    }
    table.append(thead, body);
    $("heat-map").replaceChildren(table);
  };
  if (maps.length > 1) {
    const s = el("select"), l = el("label", "", "Run ");
    maps.forEach((m, i) => { const o = el("option", "", m.run); o.value = i; s.append(o); });
    s.onchange = () => draw(maps[s.value]);
    l.append(s);
    $("heat-bar").append(l);
  }
  draw(maps[0]);
};

// settings shows the settings that differ between configurations.
const settings = (data, $, el) => {
  const d = data.differ;
  if (!d.rows || !d.rows.length) return;
  $("settings").hidden = false;
  if (d.left) $("settings-note").textContent += ` ${d.left} more configurations have no column.`;
  const head = el("tr"), thead = el("thead"), body = el("tbody"), table = el("table");
  head.append(el("th", "text", "setting"), ...d.columns.map((c) => el("th", "text", c)));
  for (const row of d.rows) {
    const tr = el("tr"), key = el("th", "text", row[0]);
    key.scope = "row";
    tr.append(key, ...row.slice(1).map((v) => el("td", "text", v)));
    body.append(tr);
  }
  thead.append(head);
  table.append(thead, body);
  $("settings-table").append(table);
};
