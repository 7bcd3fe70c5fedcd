// The heatmap: its rows and columns, their layout and how they are painted.

// More rows than the first number are many, and those of more than the second are never shown all.
const MANY_ROWS = 400;
const MOST_ROWS = 5000;
const ROWS_OF_MANY = 120;
const MOST_COLS = 5000;
// Labels less probable than this in all rows are not shown when rows are chosen.
const LEAST_SHOWN = 0.01;
// Cells less probable than this look empty, unless colours are logarithmic.
const LEAST_PAINTED = 0.002;
// Smaller cells are drawn larger, over their neighbours, so that a single one can be seen.
const SMALLEST_DOT = 2;
const LARGEST_CELL = 44;
const TALLEST = 820;
// Cells are stretched up to this height where there is little width.
const STRETCHED = 400;
// The gap between the cells and those of unmatched items or unused labels.
const GAP = 8;
const TICK = 13;
const LONGEST_ROW_NAME = 150;
const LONGEST_COL_NAME = 120;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';

class Heatmap {
  constructor() {
    this.plot = document.getElementById("plot");
    this.canvas = document.getElementById("cells");
    this.order = DATA.sites.some((raw) => raw.grouping_helps) ? "grouped" : "matched";
    this.everything = true;
    this.logarithmic = false;
    this.cursor = new Cursor(this);
    new ResizeObserver(() => this.box && this.plot.clientWidth !== this.box.room && this.draw()).observe(this.plot);
  }

  show(site, items, query) {
    this.site = site;
    this.items = items;
    this.query = query;
    this.arrange();
  }

  arrange() {
    const unsureFirst = (a, b) => a.probability - b.probability || a.row - b.row;
    document.getElementById("rows-choice").hidden = this.items.length <= MANY_ROWS || this.items.length > MOST_ROWS;
    const many = this.items.length > (this.everything ? MOST_ROWS : MANY_ROWS);
    const items = many ? [...this.items].sort(unsureFirst).slice(0, ROWS_OF_MANY) : [...this.items];
    const place = new Map(this.site.raw.order.map((row, index) => [row, index]));
    const orders = {
      grouped: (a, b) => place.get(a.row) - place.get(b.row),
      unsure: unsureFirst,
      matched: (a, b) => a.row - b.row,
      given: (a, b) => a.row - b.row,
    };
    this.rows = items.sort(orders[this.order]);
    this.whole = this.rows.length === this.site.items.length && DATA.num_cols <= MOST_COLS;
    this.cols = this.chooseCols();
    this.alone = DATA.rows_may_be_alone;
    this.unused = DATA.cols_may_be_alone && this.whole;
    this.place = new Map(this.cols.map((col, index) => [col, index]));
    if (this.alone) this.place.set(UNMATCHED, this.cols.length);
    this.note(many);
    this.cursor.clear();
    this.draw();
  }

  // All columns, or those that the rows may have.
  chooseCols() {
    const cols = this.orderCols();
    if (this.whole) return cols;
    const largest = new Map();
    for (const item of this.rows) {
      item.states.forEach((state, place) => {
        if (place > 0 && item.probs[place] < LEAST_SHOWN) return;
        largest.set(state, Math.max(largest.get(state) ?? 0, item.probs[place]));
      });
    }
    const likely = cols.filter((col) => largest.has(col));
    if (likely.length <= MOST_COLS) return likely;
    const kept = new Set([...likely].sort((a, b) => largest.get(b) - largest.get(a)).slice(0, MOST_COLS));
    return likely.filter((col) => kept.has(col));
  }

  // A label is placed with the item that has it in the matching, or else with the item that most
  // probably has it, so that probable pairs lie along the diagonal.
  orderCols() {
    const all = Array.from({ length: DATA.num_cols }, (_, col) => col);
    if (this.order === "given") return all;
    const home = new Map();
    this.rows.forEach((item, row) => {
      item.states.forEach((state, k) => {
        const strength = this.site.raw.matching[item.row] === state ? 2 : item.probs[k];
        if (!(home.get(state)?.strength >= strength)) home.set(state, { row, strength });
      });
    });
    const far = { row: Infinity, strength: 0 };
    const order = (a, b) => (a.row === b.row ? b.strength - a.strength : a.row - b.row);
    return all.sort((a, b) => order(home.get(a) ?? far, home.get(b) ?? far) || a - b);
  }

  note(many) {
    const rows = integer(this.rows.length);
    const all = many ? this.items.length : this.site.items.length;
    let words = "Rows are items, columns are labels.";
    if (!this.rows.length) words = "No items found.";
    else if (many) words = `The ${rows} least certain of ${integer(all)} items, and the labels they may have.`;
    else if (!this.whole) words = `${rows} of ${integer(all)} items, and the labels they may have.`;
    if (this.rows.length && this.width > MANY_ROWS) words += " Cells are smaller than a dot: the most probable one is on top.";
    document.getElementById("heatmap-note").textContent = words;
  }

  get width() {
    return this.cols.length + (this.alone ? 1 : 0);
  }

  get height() {
    return this.rows.length + (this.unused ? 1 : 0);
  }

  draw() {
    this.layout();
    this.paint();
    this.cursor.mark();
  }

  layout() {
    const scale = window.devicePixelRatio || 1;
    const room = this.plot.clientWidth;
    const context = this.canvas.getContext("2d");
    // Names that were searched for are bold.
    context.font = `bold ${FONT}`;
    const longest = (names) => names.reduce((most, name) => Math.max(most, context.measureText(name).width), 0);
    const rowNames = this.rows.map((item) => item.name).concat(this.unused ? ["unused"] : []);
    const colNames = this.cols.map(stateName).concat(this.alone ? ["unmatched"] : []);
    const left = Math.ceil(Math.min(longest(rowNames), LONGEST_ROW_NAME, 0.3 * room)) + 10;
    const top = Math.ceil(Math.min(longest(colNames), LONGEST_COL_NAME)) + 10;
    let w = Math.min(LARGEST_CELL, (room - left - GAP - TICK / 2) / Math.max(this.width, 1));
    let h = Math.min(LARGEST_CELL, TALLEST / Math.max(this.height, 1));
    if (Math.max(w, h) <= 3 * Math.min(w, h)) w = h = Math.min(w, h);
    else h = Math.min(h, 0.6 * LARGEST_CELL, Math.max(3 * w, STRETCHED / Math.max(this.height, 1)));
    // Whole pixels are crisp; cells smaller than a pixel share it.
    const snap = (size) => (size * scale < 1 ? size : Math.floor(size * scale) / scale);
    this.box = { scale, room, left, top, w: snap(w), h: snap(h), rowNames, colNames };
    const size = [this.x(this.width - 1) + this.box.w + TICK / 2, this.y(this.height - 1) + this.box.h + 2];
    for (const canvas of [this.canvas, this.cursor.canvas]) {
      [canvas.width, canvas.height] = size.map((length) => Math.max(1, Math.round(length * scale)));
      [canvas.style.width, canvas.style.height] = size.map((length) => `${length}px`);
      canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    }
  }

  x(place) {
    return this.box.left + place * this.box.w + (this.alone && place >= this.cols.length ? GAP : 0);
  }

  y(place) {
    return this.box.top + place * this.box.h + (this.unused && place >= this.rows.length ? GAP : 0);
  }

  paint() {
    const { w, h } = this.box;
    const context = this.canvas.getContext("2d");
    const colours = ramp(this.logarithmic);
    const gap = Math.min(w, h) >= 7 ? 1 : 0;
    const dot = [w, h].map((size) => Math.max(size, SMALLEST_DOT) - gap);
    const fill = (row, place, probability) => {
      context.fillStyle = colours.cell(probability);
      context.fillRect(this.x(place), this.y(row), ...dot);
    };
    const least = this.logarithmic ? LEAST_ON_LOG : LEAST_PAINTED;
    document.getElementById("least").textContent = this.logarithmic ? "0.01%" : "0%";
    this.paintGround(context, fill, gap, colours);
    // If cells share a pixel, the most probable one wins: ramps are monotone in each channel.
    if (Math.min(w, h) < SMALLEST_DOT) context.globalCompositeOperation = darkens() ? "darken" : "lighten";
    this.eachCell((row, place, probability) => probability >= least && fill(row, place, probability));
    context.globalCompositeOperation = "source-over";
    this.ringMatching(context, gap);
    this.writeNumbers(context, colours);
    this.writeNames(context);
  }

  eachCell(visit) {
    this.rows.forEach((item, row) => {
      item.states.forEach((state, k) => {
        const place = this.place.get(state);
        if (place !== undefined) visit(row, place, item.probs[k]);
      });
    });
    if (this.unused) this.cols.forEach((col, place) => visit(this.rows.length, place, this.site.unused[col]));
  }

  paintGround(context, fill, gap, colours) {
    const { w, h } = this.box;
    const size = [this.cols.length * w, this.rows.length * h];
    context.fillStyle = colours.cell(0);
    if (!gap) {
      context.fillRect(this.x(0), this.y(0), ...size);
      if (this.alone) context.fillRect(this.x(this.cols.length), this.y(0), w, size[1]);
      if (this.unused) context.fillRect(this.x(0), this.y(this.rows.length), size[0], h);
      return;
    }
    for (let row = 0; row < this.height; row += 1) {
      const end = row < this.rows.length ? this.width : this.cols.length;
      for (let place = 0; place < end; place += 1) fill(row, place, 0);
    }
  }

  // The best choice of labels, where cells are large enough for an outline.
  ringMatching(context, gap) {
    const { w, h } = this.box;
    const small = Math.min(w, h) < 9;
    document.getElementById("matching-key").hidden = small || !this.rows.length;
    if (small) return;
    const line = Math.min(w, h) >= 20 ? 2 : 1;
    context.strokeStyle = cssColour("--ring");
    context.lineWidth = line;
    this.rows.forEach((item, row) => {
      const place = this.place.get(this.site.raw.matching[item.row]);
      if (place === undefined) return;
      context.strokeRect(this.x(place) + line / 2, this.y(row) + line / 2, w - gap - line, h - gap - line);
    });
  }

  writeNumbers(context, colours) {
    const { w, h } = this.box;
    if (w < 30 || h < 18) return;
    context.font = FONT;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.eachCell((row, place, probability) => {
      if (probability < 0.005) return;
      const rounded = Math.round(100 * probability);
      const text = rounded === 100 ? "1" : `.${String(rounded).padStart(2, "0")}`;
      context.fillStyle = colours.ink(probability);
      context.fillText(text, this.x(place) + (w - 1) / 2, this.y(row) + h / 2);
    });
  }

  // As many names as there is room for, always including "unmatched" and "unused".
  writeNames(context) {
    const { left, top, w, h, rowNames, colNames } = this.box;
    const ticks = (names, regular, size) =>
      names.map((name, place) => [name, place]).filter(([, place]) => place >= regular || place % Math.ceil(TICK / size) === 0);
    const [plain, found, wanted] = [cssColour("--soft"), cssColour("--ink"), fold(this.query)];
    const choosePen = (name) => {
      const fits = wanted && fold(name).includes(wanted);
      context.font = fits ? `bold ${FONT}` : FONT;
      context.fillStyle = fits ? found : plain;
    };
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const [name, row] of ticks(rowNames, this.rows.length, h)) {
      choosePen(name);
      context.fillText(shorten(context, name, left - 10), left - 7, this.y(row) + h / 2);
    }
    context.textAlign = "left";
    for (const [name, place] of ticks(colNames, this.cols.length, w)) {
      if (this.alone && place < this.cols.length && this.x(this.cols.length) - this.x(place) < TICK) continue;
      choosePen(name);
      context.save();
      context.translate(this.x(place) + w / 2, top - 7);
      context.rotate(-Math.PI / 2);
      context.fillText(shorten(context, name, top - 10), 0, 0);
      context.restore();
    }
  }
}

function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}…`;
}
