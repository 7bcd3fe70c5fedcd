// The data of the report, and the formatting of numbers and names. content.py writes the data.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MILLION = 1e6;
const UNMATCHED = DATA.num_cols;

const rowName = (row) => (DATA.rows === null ? String(row) : DATA.rows[row]);

function stateName(state) {
  if (state === UNMATCHED) return "unmatched";
  return DATA.cols === null ? String(state) : DATA.cols[state];
}

// Must agree with `percent` in words.py.
function percent(probability) {
  if (probability >= 1 - 0.5 / MILLION) return "100%";
  if (probability < 0.5 / MILLION) return "0%";
  if (probability >= 0.9995) return "> 99.9%";
  if (probability < 0.0005) return "< 0.1%";
  return `${(100 * probability).toFixed(1)}%`;
}

// One permutation: its items, each with the labels it may have, most probable first.
class Site {
  constructor(raw) {
    this.raw = raw;
    this.items = raw.sizes.map((size, row) => this.item(row, size));
    this.unused = raw.unused.map((millionths) => millionths / MILLION);
  }

  item(row, size) {
    const [start, end] = [this.raw.starts[row], this.raw.starts[row + 1]];
    const states = this.raw.states.slice(start, end);
    const probs = this.raw.millionths.slice(start, end).map((value) => value / MILLION);
    const alone = states.indexOf(UNMATCHED);
    return {
      row,
      states,
      probs,
      size,
      name: rowName(row),
      best: states[0],
      probability: probs[0],
      second: probs.length > 1 ? probs[1] : 0,
      unmatched: alone < 0 ? 0 : probs[alone],
    };
  }

  // A probability as text; one that is not in the file is at most the largest that was left out.
  describe(item, state) {
    const place = item.states.indexOf(state);
    if (place >= 0) return percent(item.probs[place]);
    return DATA.left_out > 0 ? `at most ${(Math.ceil(1000 * DATA.left_out) / 10).toFixed(1)}%` : "0%";
  }
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
