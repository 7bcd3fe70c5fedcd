// The table of items or of labels: sorted by any column, in pages.

const PAGE = 100;
const MOST_PRINTED = 1000;
const MOST_IN_SET = 6;
const collator = new Intl.Collator(undefined, { numeric: true });

// A column for the one-to-one answer would say nothing if it is everybody's best label.
const CHOICE_DIFFERS = DATA.sites.some((raw) =>
  raw.matching.some((state, row) => state !== (raw.starts[row] < raw.starts[row + 1] ? raw.states[raw.starts[row]] : UNMATCHED)),
);

const SIDES = {
  items: { one: "Item", best: "Best label", alone: "Unmatched", mayBeAlone: DATA.rows_may_be_alone },
  labels: { one: "Label", best: "Best item", alone: "Unused", mayBeAlone: DATA.cols_may_be_alone },
};

function columnsOf(side) {
  const words = SIDES[side];
  return [
    { key: "item", title: words.one, value: (item) => item.name },
    { key: "best", title: words.best, value: (item) => item.call(item.best) },
    { key: "probability", title: "Probability", value: (item) => item.probability },
    { key: "choice", title: "One-to-one", value: (item) => item.call(item.choice), hidden: !CHOICE_DIFFERS },
    { key: "runner", title: "Runner-up", value: (item) => item.second, falling: true },
    { key: "set", title: "Set", value: (item) => item.size, falling: true },
    { key: "unmatched", title: words.alone, value: (item) => item.unmatched, falling: true, hidden: !words.mayBeAlone },
  ].filter((column) => !column.hidden);
}

class ItemTable {
  constructor(place) {
    this.place = place;
    this.items = [];
    this.query = "";
    this.page = 0;
    this.size = PAGE;
    this.level = DATA.level;
    this.build("items");
    this.pages = document.getElementById("pages");
    document.getElementById("previous").addEventListener("click", () => this.turn(-1));
    document.getElementById("next").addEventListener("click", () => this.turn(1));
  }

  // Make an empty table of items or of labels.
  build(side) {
    this.side = side;
    this.columns = columnsOf(side);
    this.column = this.columns.find((column) => column.key === "probability");
    this.falling = false;
    this.body = element("tbody", { role: "rowgroup" });
    this.heads = this.columns.map((column) => this.head(column));
    const row = element("tr", { role: "row" }, ...this.heads);
    // Roles are explicit because on a phone the style sheet lays the table out as cards.
    this.place.replaceChildren(
      element(
        "table",
        { class: "items", role: "table", "aria-labelledby": "items-title" },
        element("thead", { role: "rowgroup" }, row),
        this.body,
      ),
    );
    document.getElementById("items-title").textContent = side === "items" ? "Items" : "Labels";
  }

  get setTitle() {
    return `${Math.round(1000 * this.level) / 10}% set`;
  }

  head(column) {
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => this.sortBy(column));
    return element("th", { scope: "col", role: "columnheader", class: column.key }, button);
  }

  sortBy(column) {
    this.falling = column === this.column ? !this.falling : Boolean(column.falling);
    this.column = column;
    this.page = 0;
    this.render();
  }

  show(items, query) {
    this.items = items;
    this.query = query;
    this.page = 0;
    this.render();
  }

  turn(by) {
    this.page += by;
    this.render();
    document.getElementById("items-title").scrollIntoView();
  }

  // Print all items, since paper has no buttons to turn pages.
  printing(on) {
    this.size = on ? MOST_PRINTED : PAGE;
    this.render();
  }

  sorted() {
    const { value } = this.column;
    const sign = this.falling ? -1 : 1;
    const order = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
    return [...this.items].sort((a, b) => sign * order(value(a), value(b)) || a.row - b.row);
  }

  render() {
    const set = this.columns.findIndex((column) => column.key === "set");
    this.heads[set].firstChild.textContent = this.setTitle;
    this.columns.forEach((column, place) => {
      if (column !== this.column) this.heads[place].removeAttribute("aria-sort");
      else this.heads[place].setAttribute("aria-sort", this.falling ? "descending" : "ascending");
    });
    const first = this.page * this.size;
    const shown = this.sorted().slice(first, first + this.size);
    this.body.replaceChildren(...shown.map((item) => this.row(item)));
    if (!shown.length) {
      const none = element("td", { colspan: this.columns.length, role: "cell" }, `No ${this.side} found.`);
      this.body.append(element("tr", { class: "empty", role: "row" }, none));
    }
    this.pages.hidden = this.items.length <= this.size;
    document.getElementById("page").textContent =
      `${integer(first + 1)} to ${integer(first + shown.length)} of ${integer(this.items.length)}`;
    document.getElementById("previous").disabled = this.page === 0;
    document.getElementById("next").disabled = first + this.size >= this.items.length;
  }

  row(item) {
    const cells = this.columns.map(({ key }) => element("td", { class: key, role: "cell" }, ...this.cell(key, item)));
    return element("tr", { role: "row" }, ...cells);
  }

  cell(key, item) {
    const name = (state) => named(item.call(state), this.query);
    const hint = (text) => element("span", { class: "only-narrow dim" }, `${text} `);
    switch (key) {
      case "item":
        return [named(item.name, this.query)];
      case "best":
        return [name(item.best)];
      case "choice":
        return [hint("one-to-one"), name(item.choice)];
      case "probability":
        return [element("div", { class: "measure" }, bar(item.probability), number(item.probability))];
      case "runner": {
        if (item.states.length < 2) return [element("span", { class: "dim only-wide" }, "none")];
        return [hint("or"), name(item.states[1]), " ", element("span", { class: "dim number" }, percent(item.second))];
      }
      case "set": {
        const listed = item.states.slice(0, Math.min(item.size, MOST_IN_SET)).map(name);
        const more = item.size - listed.length;
        if (more > 0) listed.push(element("span", { class: "dim" }, `${more} more`));
        // Commas stay outside of names, which may run from right to left.
        return [hint(this.setTitle), ...listed.flatMap((part, place) => (place ? [", ", part] : [part]))];
      }
      default:
        return [hint(SIDES[this.side].alone.toLowerCase()), number(item.unmatched)];
    }
  }
}

const number = (probability) => element("span", { class: "number" }, percent(probability));
