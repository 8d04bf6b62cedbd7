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
