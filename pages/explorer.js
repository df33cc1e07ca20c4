"use strict";
// What is pointed at lights up everywhere. Lines belong together by the finest kind of marks that both panels have.
(() => {
  const KINDS = ["loop", "name", "source"];
  const panels = [...document.querySelectorAll(".panel")].map((element) => {
    const lines = [...element.querySelectorAll(".line")];
    const panel = {
      element, lines, text: element.querySelector("pre"), count: element.querySelector(".lit-count"),
      kinds: element.dataset.kinds.split(" "), current: -1, lit: [], by: {},
    };
    for (const kind of panel.kinds) panel.by[kind] = new Map();
    lines.forEach((line, number) => {
      line.panel = panel;
      line.place = number;
      for (const kind of panel.kinds) {
        for (const mark of marks(line, kind)) {
          const known = panel.by[kind].get(mark);
          if (known) known.push(line); else panel.by[kind].set(mark, [line]);
        }
      }
    });
    return panel;
  });

  function marks(line, kind) {
    const text = line.dataset[kind];
    return text ? text.split(" ") : [];
  }

  // Lighting: what belongs to a line, in all panels. A held line stays until Escape, or another one is held.

  let here = null, held = null;

  function partners(line, panel) {
    for (const kind of KINDS) {
      if (!line.panel.by[kind] || !panel.by[kind]) continue;
      const found = new Set();
      for (const mark of marks(line, kind)) for (const each of panel.by[kind].get(mark) || []) found.add(each);
      if (found.size || kind === "loop") return [...found];
    }
    return [];
  }

  function light(line) {
    if (line === here) return;
    if (here) here.classList.remove("here");
    here = line;
    for (const panel of panels) {
      const lit = line ? partners(line, panel) : [], keep = new Set(lit);
      for (const each of panel.lit) if (!keep.has(each)) each.classList.remove("lit");
      for (const each of lit) each.classList.add("lit");
      panel.lit = lit;
      panel.count.textContent = lit.length ? `${lit.length} lit` : "";
    }
    if (line) line.classList.add("here");
  }

  function hold(line) {
    held = line;
    light(line);
    for (const panel of panels) {
      if (panel === line.panel || !panel.lit.length) continue;
      const first = panel.lit.reduce((a, b) => (a.place < b.place ? a : b));
      unfold(first);
      within(panel, first, 3);
    }
  }

  function clear() {
    held = null;
    light(null);
  }

  // Scrolls the text of a panel, and nothing else, so that a line is in sight with some lines before it.
  function within(panel, line, before) {
    const text = panel.text, at = line.getBoundingClientRect(), height = at.height;
    const top = at.top - text.getBoundingClientRect().top + text.scrollTop;
    const margin = before * height;
    if (top - margin < text.scrollTop || top + height > text.scrollTop + text.clientHeight) {
      text.scrollTop = Math.max(0, top - margin);
    }
  }

  // Folding: a line hides those below it that stand further in.

  const depth = (line) => (line.textContent.trim() ? line.textContent.search(/\S/) : Infinity);

  function inside(line) {
    const { lines } = line.panel, found = [], outer = depth(line);
    for (let k = line.place + 1; k < lines.length && depth(lines[k]) > outer; k++) found.push(lines[k]);
    while (found.length && depth(found[found.length - 1]) === Infinity) found.pop();
    return found;
  }

  function fold(line, folded) {
    const within = inside(line);
    if (!within.length) return false;
    if (line.classList.contains("folded") === folded) return false;
    line.classList.toggle("folded", folded);
    line.setAttribute("aria-expanded", String(!folded));
    for (const each of within) {
      each.hidden = folded;
      each.classList.remove("folded");
    }
    return true;
  }

  function unfold(line) {
    line.panel.element.open = true;
    const { lines } = line.panel;
    for (let k = line.place - 1; line.hidden && k >= 0; k--) {
      if (lines[k].classList.contains("folded") && !lines[k].hidden) fold(lines[k], false);
    }
  }

  function outer(line) {
    const { lines } = line.panel, mine = depth(line);
    for (let k = line.place - 1; k >= 0; k--) if (depth(lines[k]) < mine) return lines[k];
    return null;
  }

  // Walking with the keyboard

  function go(panel, line) {
    if (!line) return;
    const before = panel.lines[panel.current];
    if (before) before.removeAttribute("id");
    panel.current = line.place;
    line.id = `${panel.element.id}-line`;
    panel.text.setAttribute("aria-activedescendant", line.id);
    light(line);
    within(panel, line, 0);
  }

  function step(panel, by) {
    let k = panel.current;
    for (let left = Math.abs(by); left > 0;) {
      const next = k + Math.sign(by);
      if (next < 0 || next >= panel.lines.length) break;
      k = next;
      if (!panel.lines[k].hidden) left--;
    }
    while (k >= 0 && panel.lines[k].hidden) k--;
    go(panel, panel.lines[Math.max(0, k)]);
  }

  const moves = {
    ArrowDown: (panel) => step(panel, 1),
    ArrowUp: (panel) => step(panel, -1),
    PageDown: (panel) => step(panel, 20),
    PageUp: (panel) => step(panel, -20),
    Home: (panel) => go(panel, panel.lines[0]),
    End: (panel) => step(panel, panel.lines.length),
    Enter: (panel) => panel.current >= 0 && hold(panel.lines[panel.current]),
    ArrowLeft: (panel) => {
      const line = panel.lines[panel.current];
      if (line && !fold(line, true)) go(panel, outer(line));
    },
    ArrowRight: (panel) => {
      const line = panel.lines[panel.current];
      if (line) fold(line, false);
    },
  };

  for (const panel of panels) {
    if (!panel.text) continue;
    const at = (event) => event.target.closest(".line");
    panel.text.addEventListener("pointerover", (event) => {
      const line = at(event);
      if (line && !held) light(line);
    });
    panel.text.addEventListener("pointerleave", () => { if (!held) light(null); });
    panel.text.addEventListener("click", (event) => {
      const line = at(event);
      if (!line || String(getSelection())) return;
      go(panel, line);
      hold(line);
    });
    panel.text.addEventListener("dblclick", (event) => {
      const line = at(event);
      if (line) fold(line, !line.classList.contains("folded"));
    });
    panel.text.addEventListener("focus", () => { if (panel.current < 0 && panel.text.matches(":focus-visible")) step(panel, 1); });
    panel.text.addEventListener("keydown", (event) => {
      const move = moves[event.key];
      if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      move(panel);
    });
  }

  // Searching, in all panels

  const search = document.getElementById("search"), found = document.getElementById("found");
  let hits = [], hit = -1;

  function look() {
    for (const line of hits) line.classList.remove("hit");
    const wanted = search.value.toLowerCase();
    hits = wanted ? panels.flatMap((panel) => panel.lines.filter((line) => line.textContent.toLowerCase().includes(wanted))) : [];
    for (const line of hits) line.classList.add("hit");
    hit = -1;
    found.textContent = wanted ? `${hits.length} line${hits.length === 1 ? "" : "s"}` : "";
  }

  function next(by) {
    if (!hits.length) return;
    hit = (hit + by + hits.length) % hits.length;
    const line = hits[hit];
    found.textContent = `${hit + 1} of ${hits.length}`;
    unfold(line);
    line.panel.text.focus({ preventScroll: true });
    line.panel.element.scrollIntoView({ block: "nearest" });
    go(line.panel, line);
  }

  search.addEventListener("input", look);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target === search;
    if (event.key === "Escape") {
      search.value = "";
      look();
      if (typing) search.blur();
      clear();
    } else if (!typing && event.key === "/") {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (!typing && (event.key === "n" || event.key === "N")) {
      next(event.key === "n" ? 1 : -1);
    }
  });
})();
