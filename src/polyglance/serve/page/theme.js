// Before anything is drawn: light or dark as chosen last time, or as the system has it.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage it is as the system has it.
}
