// Package rules names the rules by which answers are found, read and compared. A test switches each off and
// counts the verdicts that change, so that a rule without a verdict can go.
package rules

// All are the rules, by name and by what they do, in the order in which a response meets them.
var All = [...][2]string{
	{"thoughts", "what precedes the end of a model's thoughts is no answer"},
	{"boxes in a row", "boxes side by side are the parts of one answer"},
	{"factors behind", "a factor behind a box is read with it: million, per cent"},
	{"other answer", "another answer beside a box makes two of one"},
	{"phrases", `running text: what follows "the answer is", in many languages`},
	{"frames", "running text: the tag or the JSON that a prompt asked for"},
	{"emphasis", "running text: the last bold text"},
	{"openings", "words before an answer say nothing: The area is 5"},
	{"endings", "conditions and remarks after an answer say nothing"},
	{"separators", "thousands may be parted: 1,234 and 1\\,234"},
	{"repetends", "decimals that repeat are fractions"},
	{"bases", "a subscript or words name the base of a numeral"},
	{"mixed numbers", "a whole number and a fraction side by side are a sum"},
	{"number words", "numerals in words"},
	{"meanings", "words that mean a set or a value: no solution"},
	{"units", "words after a number are units or what is counted"},
	{"times", "times of day"},
	{"french intervals", "brackets turned outwards: ]0,1]"},
	{"connectives", "and, or, not and arrows between propositions"},
	{"vector products", "× and · of vectors are operators"},
	{"compositions", "f ∘ g is a composition"},
	{"other readings", "an ambiguous text may be read in another way"},
	{"options", "the letter of an option, or what stands behind it"},
	{"substances", "formulas of substances and reactions"},
	{"truth tables", "propositions and sets with names by their truth tables"},
	{"unit vectors", "sums of i, j and k are tuples"},
	{"plus minus", "a plus-minus stands for both values"},
	{"chains", "the parts of a chain of equations must agree"},
	{"other names", "coordinates, segments, angles and values with other names differ"},
	{"equations", "equations are equal up to a factor"},
	{"fractions", "an equation is equal to what it gives for a letter: xy = 1 and y = 1/x"},
	{"progressions", "progressions are one that begin some steps apart"},
	{"lists", "lists and sets, element by element"},
	{"regions", "sets of real numbers, however they are written"},
	{"brackets", "tuples and intervals"},
	{"matrices", "matrices and vectors"},
	{"ratios", "ratios are equal up to a factor"},
	{"words", "words are compared one by one"},
	{"sentences", "a sentence may stand around a word: Alice wins"},
	{"residues", "residue classes"},
	{"counting", "C(n,k) and P(n,k) are numbers"},
	{"per cent", "a per cent sign may be left out, or be 1/100"},
	{"degrees", "a degree sign may be left out"},
	{"units left out", "a unit may be left out"},
	{"leftover words", "words about a measure that differ on both sides are a difference"},
	{"rounding", "decimals are compared to the digits that they state"},
	{"floating point", "decimals as floating point prints them"},
	{"free constants", "free constants may have any name"},
}

var off string

// On reports whether a rule holds. All do, but for a test.
func On(rule string) bool { return off == "" || rule != off }

// SwitchOff switches one rule off, for a test; "" switches it on again.
func SwitchOff(rule string) { off = rule }
