// Colours come from the style sheet, so that light, dark and paper each have their own.

const STOPS = [0, 0.1, 0.4, 0.7, 1];

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const channels = (name) => [1, 3, 5].map((start) => parseInt(cssColour(name).slice(start, start + 2), 16));

// Whether more probable means darker, as on white.
const darkens = () => channels("--ramp-4")[0] < channels("--ramp-0")[0];

// On the logarithmic scale, this probability and less look like zero.
const LEAST_ON_LOG = 1e-4;

// From a probability to the colour of its cell, and of the number in it.
function ramp(logarithmic) {
  const stops = STOPS.map((_, index) => channels(`--ramp-${index}`));
  const mixed = Array.from({ length: 257 }, (_, index) => {
    const p = index / 256;
    const upper = Math.max(1, STOPS.findIndex((stop) => p <= stop));
    const share = (p - STOPS[upper - 1]) / (STOPS[upper] - STOPS[upper - 1]);
    return stops[upper].map((end, k) => Math.round(stops[upper - 1][k] * (1 - share) + end * share));
  });
  const cells = mixed.map((parts) => `rgb(${parts.join(",")})`);
  const inks = mixed.map((parts) => (luminance(parts) > 0.179 ? "#000000" : "#ffffff"));
  const share = logarithmic
    ? (probability) => Math.max(0, 1 - Math.log(Math.max(probability, LEAST_ON_LOG)) / Math.log(LEAST_ON_LOG))
    : (probability) => probability;
  const place = (probability) => Math.round(256 * share(probability));
  return { cell: (probability) => cells[place(probability)], ink: (probability) => inks[place(probability)] };
}

// Relative luminance as WCAG defines it; at 0.179 black and white contrast equally.
function luminance(parts) {
  const linear = parts.map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
