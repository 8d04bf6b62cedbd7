/* Copying said aloud, reports that know the reader's section, and ticks on exercises. The page can
   be read and its links work without this. Ticks are kept in the browser's store, on this device;
   where it refuses one, they last until the page is left. */
(() => {
  const make = (name, attributes, ...inside) => {
    const element = Object.assign(document.createElement(name), attributes);
    element.append(...inside);
    return element;
  };

  // ------------------------------------------------------------ copying
  const said = make("div", { className: "said-only" });
  said.setAttribute("role", "status");
  document.body.append(said);
  const say = (words) => {
    said.textContent = "";
    setTimeout(() => { said.textContent = words; }, 50); // the same words again are said again
  };
  addEventListener("DOMContentLoaded", () => { // the copy buttons are there by now
    for (const button of document.querySelectorAll(".copybtn"))
      button.setAttribute("aria-label", "Copy this code");
  });
  document.addEventListener("click", (event) => {
    // Not by `closest`: what was pressed, its icon, has been replaced by now.
    const button = event.composedPath().find((one) => one.classList?.contains("copybtn"));
    if (button) say(button.classList.contains("success") ? "Copied" : "Copying failed");
  });

  // ------------------------------------------------------------ reports
  const nav = document.querySelector(".use-page");
  const report = nav?.querySelector("a.report");
  if (report && document.querySelector(".plan")) {
    const plain = report.href;
    const headings = [...document.querySelectorAll(".bd-article :is(h2, h3)")];
    const atTop = () => scrollY < 50;
    const here = () => {
      if (atTop()) return null;
      // What lies below cannot come up to the middle: towards the end, look further down.
      const below = document.documentElement.scrollHeight - innerHeight - scrollY;
      const down = Math.max(0.4, 1 - below / innerHeight);
      return headings.filter(
        (one) => one.getBoundingClientRect().top < innerHeight * down).pop();
    };
    const links = [report];
    const side = document.querySelector(".sidebar-secondary-item");
    if (side) { // in sight all along the page, on a phone behind the button for the contents
      links.push(make("a", { className: "report", href: plain }, "Report a problem here"));
      side.append(make("p", { className: "report-here" }, links[1]));
    }
    const fill = () => {
      const at = here();
      if (!at) return; // who scrolls back up to the button has read somewhere else: it stays
      const name = at.cloneNode(true);
      name.querySelectorAll(".headerlink").forEach((link) => link.remove());
      const url = new URL(plain);
      const words = `${name.textContent.trim()} (#${at.closest("section").id})`;
      url.searchParams.set("title", `${url.searchParams.get("title")}: ${name.textContent.trim()}`);
      url.searchParams.set("body", url.searchParams.get("body").replace(
        /^Section: .*$/m, () => `Section: ${words}`));
      for (const link of links) link.href = url.href;
    };
    let waiting;
    addEventListener("scroll", () => {
      clearTimeout(waiting);
      waiting = setTimeout(fill, 400);
    }, { passive: true });
    for (const kind of ["pointerdown", "focusin"])
      for (const link of links) link.addEventListener(kind, fill);
  }

  // ------------------------------------------------------------ ticks
  const START = "exercises:";
  let keeps = !window.storeRefused; // localStorage is then a stand-in, see using.py
  const store = {
    names: () => Object.keys(localStorage).filter((name) => name.startsWith(START)),
    get(name) {
      try {
        const found = JSON.parse(localStorage.getItem(name) ?? "[]");
        return Array.isArray(found) ? found : [];
      } catch { return []; } // something else lies there
    },
    set(name, numbers) {
      try {
        if (numbers.length) localStorage.setItem(name, JSON.stringify(numbers));
        else localStorage.removeItem(name);
      } catch { keeps = false; } // the store is full
    },
  };
  const key = (book, page) => `${START}${book}:${page}`;
  const done = (ticks, numbers) => numbers.filter((one) => ticks.includes(one)).length;

  const sections = [...document.querySelectorAll("section.exercise")];
  const number = (section) => Number(section.className.match(/number-(\d+)/)[1]);
  let draw = () => {};
  if (nav && sections.length) {
    const name = key(nav.dataset.book, nav.dataset.page);
    const numbers = sections.map(number);
    const boxes = sections.map((section) => {
      const box = make("input", { type: "checkbox" });
      box.setAttribute("aria-label", `Exercise ${number(section)} done`);
      box.addEventListener("change", () => {
        const others = store.get(name).filter((one) => one !== number(section));
        store.set(name, box.checked ? [...others, number(section)].sort((a, b) => a - b) : others);
        drawAll();
      });
      section.append(make("p", { className: "tick d-print-none" },
        make("label", {}, box, " Done")));
      return box;
    });
    const count = make("output", {});
    const where = make("span", {});
    const clear = make("button", { type: "button" }, "Clear");
    clear.setAttribute("aria-label", "Clear this page's ticks");
    clear.addEventListener("click", () => {
      store.set(name, []);
      drawAll();
      boxes[0].focus(); // the button is gone
    });
    sections[0].before(make("p", { className: "ticks-here d-print-none" }, count, where, clear));
    draw = () => {
      const ticks = store.get(name);
      boxes.forEach((box, i) => { box.checked = ticks.includes(numbers[i]); });
      count.textContent = `${done(ticks, numbers)} of ${numbers.length} done.`;
      where.textContent = keeps ? " Ticks are kept on this device only, in this browser."
        : " This browser keeps nothing: ticks last until you leave the page.";
      clear.hidden = !done(ticks, numbers);
    };
  }

  const listed = document.querySelectorAll(".page-list dt a, .bd-links a.reference");
  const pageOf = (link) => new URL(link.href).pathname.split("/").pop().replace(/\.html$/, "");
  const list = [...document.querySelectorAll(".page-list")].pop();
  const all = list && make("p", { className: "ticks-here", hidden: true },
    make("span", {}, "Your ticks are kept on this device only, in this browser."));
  if (list) {
    const clear = make("button", { type: "button" }, "Clear all ticks");
    clear.addEventListener("click", () => {
      for (const name of store.names())
        if (name.startsWith(key(window.bookExercises.book, ""))) store.set(name, []);
      drawAll();
      say("All ticks cleared");
    });
    all.append(clear);
    list.after(all);
  }
  const drawLists = () => {
    const { book, pages } = window.bookExercises;
    let any = false;
    for (const link of listed) {
      const numbers = pages[pageOf(link)];
      if (!numbers) continue;
      const ticked = done(store.get(key(book, pageOf(link))), numbers);
      link.querySelector(".ticks")?.remove();
      if (!ticked) continue;
      any = true;
      link.append(make("span", { className: "ticks" }, ` ${ticked} of ${numbers.length} done`));
    }
    if (all) all.hidden = !any;
  };
  // How many exercises each page has is asked for only where there are ticks.
  let asked = false;
  const drawAll = () => {
    draw();
    if (window.bookExercises) drawLists();
    else if (!asked && store.names().length) {
      asked = true;
      const script = make("script", {
        src: new URL("exercises.js", own).href, onload: () => drawLists() });
      document.head.append(script);
    }
  };
  const own = document.currentScript.src;
  drawAll();
  addEventListener("storage", drawAll); // another tab
  addEventListener("pageshow", (event) => { if (event.persisted) drawAll(); });
})();
