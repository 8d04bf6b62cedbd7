/* Small things for all pages: paper, boxes that scroll, and what the button for the theme says. */
(() => {
  const root = document.documentElement;

  // On paper all is dark on white and nothing is folded; afterwards the page is as it was.
  const paper = matchMedia("print");
  let before = null;
  const onPaper = (printing) => {
    if (printing && !before) {
      const folded = [...document.querySelectorAll("details:not([open])")];
      before = { theme: root.dataset.theme, folded };
      root.dataset.theme = "light";
      for (const one of folded) one.open = true;
      // What would come when it nears the screen has to be there now.
      for (const one of document.querySelectorAll("img[loading=lazy]")) one.loading = "eager";
    } else if (!printing && before) {
      root.dataset.theme = before.theme;
      for (const one of before.folded) one.open = false;
      before = null;
    }
  };
  paper.addEventListener("change", () => onPaper(paper.matches));
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));

  // The theme does this for code; tables and formulas scroll in boxes of their own too.
  const boxes = ".formula, .wide-table, div.table-wrapper, .output.text_html, math[display=block]";
  const reachable = () => {
    for (const box of document.querySelectorAll(boxes)) {
      const scrolls = box.scrollWidth > box.clientWidth + 1;
      if (scrolls) box.tabIndex = 0; else box.removeAttribute("tabindex");
    }
  };
  let waiting;
  const soon = () => {
    clearTimeout(waiting);
    waiting = setTimeout(reachable, 200);
  };
  addEventListener("load", reachable);
  addEventListener("resize", soon);
  document.addEventListener("toggle", soon, true); // a fold was opened

  // A sidebar opens as a dialog; closed, it gives the focus back to its button, which the theme
  // takes it from.
  for (const side of ["primary", "secondary"])
    document.getElementById(`pst-${side}-sidebar-modal`)?.addEventListener("close", () => {
      setTimeout(() => document.querySelector(`.${side}-toggle`)?.focus());
    });

  const names = { auto: "as the system", light: "light", dark: "dark" };
  const say = () => {
    for (const button of document.querySelectorAll(".theme-switch-button")) {
      const words = `Colours: ${names[root.dataset.mode] ?? names.auto}`;
      button.setAttribute("aria-label", words);
      button.title = words;
    }
  };
  new MutationObserver(say).observe(root, { attributeFilter: ["data-mode"] });
  say();
})();

/* The claims' filters work by style rules alone; this adds the count and an address that can be
   sent: claims.html?verdict=wrong. */
(() => {
  const form = document.querySelector(".claim-filters");
  if (!form) return;
  const selects = [...form.querySelectorAll("select")];
  const rows = [...document.querySelectorAll(".claim-row")];
  const asked = new URLSearchParams(location.search);
  const name = (select) => select.id.replace("filter-", "");
  for (const select of selects) {
    const value = asked.get(name(select));
    if ([...select.options].some((option) => option.value === value)) select.value = value;
  }
  const show = () => {
    const shown = rows.filter((row) => getComputedStyle(row).display !== "none").length;
    form.querySelector("output").textContent = `${shown} of ${rows.length} claims`;
  };
  form.addEventListener("change", () => {
    const query = new URLSearchParams();
    for (const select of selects) if (select.value) query.set(name(select), select.value);
    try {
      history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    } catch { /* a page opened from a file may refuse it */ }
    show();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
})();
