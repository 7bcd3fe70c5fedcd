// The data of the report, and the formatting of numbers and names. content.py writes the data.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MILLION = 1e6;
const UNMATCHED = DATA.num_cols;
const UNUSED = DATA.num_rows;
// Sums of rounded probabilities may be short of a level by this much.
const ROUNDED = 1e-5;

const rowName = (row) => (DATA.rows === null ? String(row) : DATA.rows[row]);

function stateName(state) {
  if (state === UNMATCHED) return "unmatched";
  return DATA.cols === null ? String(state) : DATA.cols[state];
}

// An item that has a label, from the label's side.
const holderName = (row) => (row === UNUSED ? "unused" : rowName(row));

// Must agree with `percent` in words.py.
function percent(probability) {
  if (probability >= 1 - 0.5 / MILLION) return "100%";
  if (probability < 0.5 / MILLION) return "0%";
  if (probability >= 0.9995) return "> 99.9%";
  if (probability < 0.0005) return "< 0.1%";
  return `${(100 * probability).toFixed(1)}%`;
}

// One permutation: its items, each with the labels it may have, most probable first; and its labels,
// each with the items that may have it.
class Site {
  constructor(raw) {
    this.raw = raw;
    this.items = raw.sizes.map((size, row) => this.item(row, size));
    this.unused = raw.unused.map((millionths) => millionths / MILLION);
    this.known = null;
  }

  item(row, size) {
    const [start, end] = [this.raw.starts[row], this.raw.starts[row + 1]];
    const states = this.raw.states.slice(start, end);
    const probs = this.raw.millionths.slice(start, end).map((value) => value / MILLION);
    return { size, given: size, ...entry(row, rowName(row), states, probs, stateName, this.raw.matching[row], UNMATCHED) };
  }

  // Made when they are first asked for.
  get labels() {
    this.known ??= this.transposed();
    return this.known;
  }

  transposed() {
    const held = Array.from({ length: DATA.num_cols }, () => []);
    const holder = new Array(DATA.num_cols).fill(UNUSED);
    for (const item of this.items) {
      if (item.choice !== UNMATCHED) holder[item.choice] = item.row;
      item.states.forEach((state, k) => state !== UNMATCHED && held[state].push([item.row, item.probs[k]]));
    }
    return held.map((pairs, col) => {
      if (this.unused[col] > 0) pairs.push([UNUSED, this.unused[col]]);
      pairs.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
      const [states, probs] = [0, 1].map((side) => pairs.map((pair) => pair[side]));
      return entry(col, stateName(col), states, probs, holderName, holder[col], UNUSED);
    });
  }

  // Choose the level of all credible sets. Those at the level of the file were counted before small
  // probabilities were left out.
  setLevel(level) {
    for (const item of this.items) {
      item.size = level === DATA.level ? item.given : setSize(item.probs, level);
    }
    for (const label of this.labels) label.size = setSize(label.probs, level);
  }

  // A probability as text; one that is not in the file is at most the largest that was left out.
  describe(item, state) {
    const place = item.states.indexOf(state);
    if (place >= 0) return percent(item.probs[place]);
    return DATA.left_out > 0 ? `at most ${(Math.ceil(1000 * DATA.left_out) / 10).toFixed(1)}%` : "0%";
  }
}

// A row of a table: what it is, and what it may be in states of falling probability.
function entry(row, name, states, probs, call, choice, alone) {
  const place = states.indexOf(alone);
  return {
    row,
    name,
    states,
    probs,
    call,
    choice,
    size: states.length,
    best: states.length ? states[0] : alone,
    probability: probs.length ? probs[0] : 0,
    second: probs.length > 1 ? probs[1] : 0,
    unmatched: place < 0 ? 0 : probs[place],
  };
}

// How many of the probabilities it takes to reach a level; all if they do not.
function setSize(probs, level) {
  let total = 0;
  for (let k = 0; k < probs.length; k += 1) {
    total += probs[k];
    if (total >= level - ROUNDED) return k + 1;
  }
  return probs.length;
}

// The items to show. The search looks at labels in the credible set and at the item's own name.
function chooseItems(site, query, onlyUnsure) {
  const wanted = fold(query);
  const labels = new Set();
  if (wanted) {
    for (let col = 0; col <= UNMATCHED; col += 1) {
      if (fold(stateName(col)).includes(wanted)) labels.add(col);
    }
  }
  const fits = (item) =>
    !wanted ||
    fold(item.name).includes(wanted) ||
    item.states.slice(0, Math.max(item.size, 2)).some((state) => labels.has(state));
  return site.items.filter((item) => (!onlyUnsure || item.probability < DATA.certain) && fits(item));
}

// The labels to show, by the same rules.
function chooseLabels(site, query, onlyUnsure) {
  const wanted = fold(query);
  const fits = (label) =>
    !wanted ||
    fold(label.name).includes(wanted) ||
    label.states.slice(0, Math.max(label.size, 2)).some((row) => fold(label.call(row)).includes(wanted));
  return site.labels.filter((label) => (!onlyUnsure || label.probability < DATA.certain) && fits(label));
}

const integer = (number) => number.toLocaleString("en");

const fold = (text) => text.trim().toLocaleLowerCase();

// An element with attributes and children; text is never parsed as markup.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A name in which the part that was searched for is marked.
function named(text, query) {
  const shown = element("bdi", {});
  const start = query ? text.toLocaleLowerCase().indexOf(fold(query)) : -1;
  if (start < 0 || !fold(query)) {
    shown.textContent = text;
    return shown;
  }
  const end = start + fold(query).length;
  shown.append(text.slice(0, start), element("mark", {}, text.slice(start, end)), text.slice(end));
  return shown;
}

function bar(probability) {
  const fill = element("span", {});
  fill.style.width = `${100 * probability}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, fill);
}
