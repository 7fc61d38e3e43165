"use strict";
// Functions that turn text of a run into markup or into a CSV file. Names, labels
// and numbers come from run folders and are not trusted.

const show = (x) => {
  if (x === null || x === undefined || Number.isNaN(x)) return "-";
  if (typeof x !== "number") return escape(x);
  const a = Math.abs(x);
  if (a !== 0 && (a < 1e-3 || a >= 1e6)) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
};

const escape = (s) => String(s).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

// csvLine puts an apostrophe before cells that a spreadsheet would take for a
// formula. Numbers stay numbers.
const csvLine = (cells) => cells.map((c) => {
  let s = c === null || c === undefined ? "" : String(c);
  if (/^[=+\-@\t\r\n]/.test(s) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(s)) s = "'" + s;
  return /[",\r\n]/.test(s) ? '"' + s.replaceAll('"', '""') + '"' : s;
}).join(",") + "\n";

// tooltip is the markup of the box that appears over a chart. single says that the
// page shows one configuration, whose name is then left out.
const tooltipLines = 14;
const tooltip = (f, params, single) => {
  const name = (p) => escape(p.seriesName), label = (p) => escape(f.labels[p.seriesIndex]);
  if (f.kind === "scatter") {
    const p = params[0];
    return `${name(p)}, ${label(p)}<br>p ${show(p.value[0])}, ESS ${show(p.value[1])}`;
  }
  const shown = params.filter((p) => f.labels[p.seriesIndex]);
  const rows = shown.slice(0, tooltipLines).map((p) => {
    const text = f.kind === "bar" ? name(p) : single ? label(p) : `${name(p)} <i>${label(p)}</i>`;
    return `${p.marker}${text} <b>${show(f.kind === "bar" ? p.value : p.value[1])}</b>`;
  });
  if (shown.length > tooltipLines) rows.push(`and ${shown.length - tooltipLines} more`);
  const head = f.kind === "bar" ? escape(params[0].name) : `${escape(f.x)} ${show(params[0].value[0])}`;
  return [head, ...rows].join("<br>");
};

