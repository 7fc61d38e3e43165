package verifier

import (
	"regexp"
	"slices"
	"strings"
)

// Formulas of substances, ions and reactions are compared by their letters, numbers and
// charges, however they are set: CH_4, \mathrm{CH}_4, \ce{CH4}.

var (
	plainFormula = strings.NewReplacer(`\ce`, "", `\mathrm`, "", `\text`, "", `\rm`, "", `\mathsf`, "", `\left`, "", `\right)`, ")", `\right]`, "]", "{", "", "}", "", "_", "", "$", "", `\,`, "", `\;`, "", `\ `, "", "~", "", " ", "", `\cdot`, "·",
		`\rightleftharpoons`, "⇌", `\leftrightharpoons`, "⇌", "<=>", "⇌", "<->", "⇌", `\longrightarrow`, "→", `\rightarrow`, "→", `\to`, "→", "->", "→", "(aq)", "", "(s)", "", "(l)", "", "(g)", "",
		"₀", "0", "₁", "1", "₂", "2", "₃", "3", "₄", "4", "₅", "5", "₆", "6", "₇", "7", "₈", "8", "₉", "9", "²", "^2",
		"³", "^3", "⁴", "^4", "⁵", "^5", "⁶", "^6", "⁻", "-", "⁺", "+", "−", "-")
	// substance matches a formula with its number and its charge, or an electron configuration.
	substance = regexp.MustCompile(`^\d*(?:(?:\^\d+)?[A-Z][a-z]?\d*|[(\[]|[)\]]\d*|\d[spdf]\^?\d{1,2}|·\d*)+(?:\^?\d*[+-])?$|^\d*e\^?-$`)
)

// reaction returns the normal form of a substance or a reaction, and whether text is one. The terms of each side are
// sorted, since they may stand in any order; the arrow says whether the reaction is an equilibrium.
func reaction(text string) (normal string, ok bool) {
	if !strings.ContainsAny(text, "ABCDEFGHIKLMNOPRSTUVWXYZ") || len(text) > 300 { // no element has a J or Q
		return "", false
	}
	var sides []string
	for _, side := range strings.Split(strings.ReplaceAll(plainFormula.Replace(text), "⇌", "→⇌"), "→") { // either arrow parts sides
		var terms []string
		start := 0
		for i := range side {
			if side[i] == '+' && i+1 < len(side) && strings.IndexByte("+-^)", side[i+1]) < 0 { // no charge
				terms, start = append(terms, side[start:i]), i+1
			}
		}
		terms = append(terms, strings.TrimPrefix(side[start:], "⇌"))
		for i, term := range terms {
			if !substance.MatchString(term) {
				return "", false
			}
			terms[i] = strings.ReplaceAll(term, "^", "")
		}
		slices.Sort(terms)
		sides = append(sides, strings.Join(terms, " + "))
	}
	arrow := " → "
	if strings.Contains(text, "harpoons") || strings.Contains(text, "<=>") || strings.Contains(text, "⇌") {
		arrow = " ⇌ "
	}
	return strings.Join(sides, arrow), len(sides) < 3 // one side, a substance, or two
}

// sameSubstance reports whether both texts are one substance or reaction.
func sameSubstance(gold, answer string) bool {
	x, okX := reaction(gold)
	y, okY := reaction(answer)
	return okX && okY && x == y
}
