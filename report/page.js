(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const el = (tag, className, text) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dot = (color) => {
    const d = el("span", "dot");
    d.style.background = color;
    return d;
  };
  const save = (name, url) => {
    const a = el("a");
    a.href = url;
    a.download = name;
    a.click();
  };
  const saveText = (name, text, type) => {
    const url = URL.createObjectURL(new Blob([text], { type }));
    save(name, url);
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };

  // The page is light or dark as the system says, until the button is used.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const setTheme = (theme) => {
    document.documentElement.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "Light" : "Dark";
    redraw();
  };
  $("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  dark.onchange = () => setTheme(dark.matches ? "dark" : "light");

  // At a glance, the page shows one run of each configuration, and the others on demand.
  const glanceLimit = 8, grouped = new Set();
  data.runs.forEach((run) => {
    const card = el("div", "card run");
    card.hidden = data.runs.length > glanceLimit && (grouped.has(run.group) || grouped.size >= glanceLimit);
    if (!card.hidden) grouped.add(run.group);
    const h = el("h3");
    h.append(dot(run.color), run.name);
    const dl = el("dl");
    for (const f of run.findings || []) {
      const dd = el("dd", "", f.text);
      const at = (data.rollouts || []).findIndex((s) => s.run === run.name);
      if (f.show && at >= 0) {
        const b = el("button", "link", "Show them");
        b.type = "button";
        b.onclick = () => showResponses(at, { verdict: f.show });
        dd.append(" ", b);
      }
      dl.append(el("dt", f.level, f.question), dd);
    }
    card.append(h, el("p", "note", run.about), dl);
    $("findings").append(card);
  });
  if (data.runs.length > glanceLimit) {
    const more = el("button", "", `Show all ${data.runs.length} runs`);
    more.onclick = () => { $("findings").querySelectorAll(".run").forEach((c) => { c.hidden = false; }); more.remove(); };
    $("findings").after(more);
    more.style.marginTop = "12px";
  }
  for (const r of data.results || []) {
    const t = el("table"), head = el("tr"), wrap = el("div", "scroll");
    const text = r.columns.map((_, i) => i === 0 || (r.rows || []).some((row) => /^[A-Za-z]/.test(row[i])));
    r.columns.forEach((c, i) => head.append(el("th", text[i] ? "text" : "", c)));
    const thead = el("thead"), body = el("tbody");
    thead.append(head);
    for (const row of r.rows || []) {
      const tr = el("tr");
      row.forEach((c, i) => tr.append(el("td", text[i] ? "text" : "", c)));
      body.append(tr);
    }
    t.append(thead, body);
    wrap.append(t);
    $("results").append(el("h2", "", r.title), el("p", "note", r.note), wrap);
    $("results").hidden = false;
  }

  // Charts are made when they come into view.
  const off = new Set(), charts = new Map();
  let smooth = 0;
  const smoothed = (points) => {
    if (!smooth || points.length < 4) return points;
    let sum = 0, weight = 0;
    return points.map(([x, y]) => {
      sum = smooth * sum + (1 - smooth) * y;
      weight = smooth * weight + (1 - smooth);
      return [x, sum / weight];
    });
  };
  const option = (f) => {
    const ink = css("--ink"), soft = css("--soft"), line = css("--line"), card = css("--card");
    const o = structuredClone(f.chart);
    delete o.title;
    delete o.toolbox;
    delete o.color;
    o.backgroundColor = "transparent";
    o.textStyle = { color: soft, fontFamily: getComputedStyle(document.body).fontFamily };
    const axis = (a, name) => ({
      ...a, name: undefined,
      axisLine: { lineStyle: { color: line } }, axisTick: { show: false },
      axisLabel: { color: soft, fontSize: 11, hideOverlap: true, ...(a.type === "category" ? { width: f.wide ? 280 : 150, overflow: "truncate" } : { formatter: (v) => show(v) }) },
      splitLine: { show: name === "y" ? a.type !== "category" : f.kind !== "line", lineStyle: { color: line } },
    });
    o.xAxis = o.xAxis.map((a) => ({ ...axis(a, "x"), name: f.x, nameLocation: "middle", nameGap: 24, nameTextStyle: { color: soft, fontSize: 11 } }));
    o.yAxis = o.yAxis.map((a) => axis(a, "y"));
    o.grid = { left: 8, right: 14, top: 12, bottom: f.kind === "bar" ? 56 : 26, containLabel: true };
    if (f.kind === "bar") o.legend = { ...o.legend, textStyle: { color: soft }, itemWidth: 12, itemHeight: 8, pageTextStyle: { color: soft }, bottom: 0 };
    if (o.dataZoom) o.dataZoom = o.dataZoom.map((z) => ({ ...z, zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }));
    o.tooltip = {
      ...o.tooltip, confine: true, backgroundColor: card, borderColor: line, textStyle: { color: ink, fontSize: 12 },
      axisPointer: { type: f.kind === "bar" ? "shadow" : "line", lineStyle: { color: soft } },
      formatter: (p) => tooltip(f, Array.isArray(p) ? p : [p], data.legend.length === 1),
    };
    o.series = o.series.map((s, i) => f.kind === "line" ? {
      ...s, data: off.has(s.name) ? [] : smoothed(s.data), silent: !f.labels[i],
      itemStyle: { color: s.color }, lineStyle: { ...s.lineStyle, color: s.color }, z: f.labels[i] ? 3 : 2,
      emphasis: { disabled: true },
    } : { ...s, data: f.kind === "scatter" && off.has(s.name) ? [] : s.data, itemStyle: { ...s.itemStyle, color: s.color } });
    return o;
  };
  const draw = (f, box) => {
    const chart = charts.get(f.id) || echarts.init(box, null, { renderer: "canvas" });
    charts.set(f.id, chart);
    chart.setOption(option(f), { notMerge: true });
  };
  const redraw = () => { for (const f of data.figures) if (charts.has(f.id)) draw(f, charts.get(f.id).getDom()); };
  const seen = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (!e.isIntersecting) continue;
      seen.unobserve(e.target);
      draw(data.figures.find((f) => f.id === e.target.dataset.id), e.target);
    }
  }, { rootMargin: "300px" });
  const picture = (f, renderer) => {
    // A picture is drawn anew at a fixed size, so that it does not depend on the window.
    const box = el("div");
    box.style.cssText = "position:absolute;left:-9999px;width:900px;height:500px";
    document.body.append(box);
    const c = echarts.init(box, null, { renderer, width: 900, height: 500 });
    const o = option(f);
    o.title = { text: f.title, left: 14, top: 8, textStyle: { color: css("--ink"), fontSize: 15 } };
    o.grid = { ...o.grid, top: 70, bottom: f.kind === "bar" ? 56 : 34, left: 20, right: 30 };
    o.backgroundColor = css("--card");
    if (f.kind !== "bar") o.legend = { show: true, type: "plain", top: 36, left: 14, textStyle: { color: css("--ink") }, data: data.legend.slice(0, 10).map((g) => ({ name: g.name, icon: "circle" })) };
    c.setOption(o);
    const url = renderer === "svg" ? "data:image/svg+xml;charset=utf-8," + encodeURIComponent(c.renderToSVGString()) : c.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: css("--card") });
    c.dispose();
    box.remove();
    return url;
  };
  const figureCSV = (f) => {
    if (f.kind === "bar") {
      const names = f.chart.yAxis[0].data;
      return csvLine(["configuration", ...f.labels]) + names.map((n, i) => csvLine([n, ...f.chart.series.map((s) => s.data[i])])).join("");
    }
    return csvLine(["configuration", "line", f.x, f.kind === "scatter" ? "ESS" : f.title]) +
      f.chart.series.map((s, i) => s.data.map(([x, y]) => csvLine([s.name, f.labels[i] || "run", x, y])).join("")).join("");
  };
  for (const f of data.figures) {
    if (!f.chart) { // a sentence replaces the chart
      $("unchanged").append(el("p", "note", f.title + ": " + f.note));
      continue;
    }
    const fig = el("figure", "card" + (f.wide ? " wide" : "")), top = el("div", "top"), tools = el("span", "tools");
    for (const [name, act] of [
      ["PNG", () => save(f.id + ".png", picture(f, "canvas"))],
      ["SVG", () => save(f.id + ".svg", picture(f, "svg"))],
      ["CSV", () => saveText(f.id + ".csv", figureCSV(f), "text/csv")],
    ]) {
      const b = el("button", "link", name);
      b.type = "button";
      b.title = `Save ${f.title} as ${name}`;
      b.onclick = act;
      tools.append(b);
    }
    top.append(el("h3", "", f.title), tools);
    const box = el("div", "chart");
    box.dataset.id = f.id;
    if (f.kind === "bar") box.style.height = Math.max(150, 90 + 30 * f.chart.yAxis[0].data.length) + "px";
    fig.append(top, el("p", "note", f.note), box);
    $("figures").append(fig);
    seen.observe(box);
  }
  window.addEventListener("resize", () => charts.forEach((c) => c.resize()));
  $("smooth").oninput = (e) => { smooth = Number(e.target.value); redraw(); };
  for (const g of data.legend) {
    const b = el("button");
    b.type = "button";
    b.append(dot(g.color), g.name + (g.runs > 1 ? ` (${g.runs})` : ""));
    b.title = "Show or hide; double click shows it alone";
    b.onclick = () => { off.has(g.name) ? off.delete(g.name) : off.add(g.name); marks(); };
    b.ondblclick = () => { off.clear(); data.legend.forEach((x) => { if (x !== g) off.add(x.name); }); marks(); };
    b.dataset.name = g.name;
    $("legend").append(b);
  }
  const marks = () => {
    if (off.size === data.legend.length) off.clear();
    $("legend").querySelectorAll("button").forEach((b) => b.classList.toggle("off", off.has(b.dataset.name)));
    redraw();
  };

  // The table of runs.
  const table = data.table;
  let order = { column: -1, down: false };
  const fillTable = () => {
    const rows = [...table.rows];
    if (order.column >= 0) {
      const key = (r) => r.cells[order.column];
      rows.sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === y) return 0;
        if (x === null || x === "") return 1; // missing values come last in either order
        if (y === null || y === "") return -1;
        const numbers = x !== "" && y !== "" && !Number.isNaN(Number(x)) && !Number.isNaN(Number(y));
        const less = numbers ? Number(x) - Number(y) : String(x).localeCompare(String(y));
        return order.down ? -less : less;
      });
    }
    const head = el("tr");
    table.columns.forEach((c, i) => {
      const th = el("th", c.digits < 0 ? "text" : "", c.name);
      th.title = c.title || "";
      th.tabIndex = 0;
      if (i === order.column) th.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      th.onclick = () => { order = { column: i, down: order.column === i ? !order.down : c.digits >= 0 }; fillTable(); };
      th.onkeydown = (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); th.onclick(); } };
      head.append(th);
    });
    const thead = el("thead"), body = el("tbody");
    thead.append(head);
    for (const r of rows) {
      const tr = el("tr");
      r.cells.forEach((v, i) => {
        const c = table.columns[i];
        const td = el("td", c.digits < 0 ? "text" : "", c.digits < 0 ? v : v === null ? "" : v !== 0 && Math.abs(v) < 10 ** -c.digits ? show(v) : v.toFixed(c.digits));
        if (i === 0) td.prepend(dot(r.color));
        tr.append(td);
      });
      body.append(tr);
    }
    $("table").replaceChildren(thead, body);
  };
  fillTable();
  $("table-csv").onclick = () => saveText("runs.csv", csvLine(table.columns.map((c) => c.name)) + table.rows.map((r) => csvLine(r.cells)).join(""), "text/csv");

  const showResponses = responses(data, $, el);
  heatMaps(data, $, el, showResponses);
  settings(data, $, el);

  setTheme(dark.matches ? "dark" : "light");
})();
