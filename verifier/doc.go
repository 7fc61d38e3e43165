// Package verifier says whether a response answers a mathematics problem: it finds the answer in the response,
// reads both it and the known answer (the gold) as mathematics, and decides whether they are equal.
//
// A verdict is a pure function of its arguments: no goroutines, no clocks, no state between calls. Work is
// bounded by counting it, so that hostile input costs milliseconds and ends in [Limit], never in a silent zero.
//
// # From text to verdict
//
//	response ─ finder ─▶ extract ─ latex.Parse ─▶ tree ─ comparer ─▶ decision ─▶ Result
//	gold ───── finder ─▶ text ──── latex.Parse ─▶ tree ─────┘ └─ algebra.Checker: one number?
//
// A finder looks for the answer in a response; what it finds is an extract: one or more texts, the likeliest
// first. A box is one \boxed{}. Package latex cuts a text into tokens and parses them into a tree of Nodes;
// where the text allows several trees, a Reading chooses one and an ambiguity tells of the others. A comparer
// holds the budget of one pair of trees and applies the rule that fits their kinds: the table [kinds] in
// compare.go. A quantity is an expression without its units. A region is a set of real numbers. A convention is
// a way in which an answer may differ from the gold; one verdict uses at most one. A Checker says whether two
// expressions are equal: by exact arithmetic, in a finite field (a formula), or in balls (a numeric). A
// decision is the Result with its trees.
//
// The files in reading order:
//
//   - verifier.go, verify.go: the door; readings of what is ambiguous.
//   - extract.go, box.go, prose.go: where the answer is.
//   - internal/latex: token, lex, number, unicode; parse, expression, atom, command,
//     environment; unit, nouns, words, introduction: what is said in words; tree.
//   - compare.go: the table of rules by kinds; convention.go.
//   - relations, lists, inequalities, regions, realline, matrices, ratios, signs, texts,
//     logic, chemistry, constants, scalars (with units), counting, worked: a rule or a few each.
//   - internal/algebra: algebra, rational, field, prime, numeric, sample, relation.
//   - internal/ball: real and complex arithmetic with bounds for its errors.
//   - internal/rules: the names of the rules. TestRules switches each off and prints the
//     verdicts that it decides; a rule without a verdict goes.
//
// # Conventions
//
// Equality is mathematical: any form of the same value counts, simplified or
// not. Where mathematics leaves a choice it is made as follows.
//
//   - A decimal of at least six significant digits is compared with a rational number to the digits that it states,
//     rounded or cut off: 0.333333 is 1/3, 0.333334 is not. A closed form that is not rational, such as the root of
//     2, is compared in this way only with a decimal that stands behind ≈ or "about"; a gold that is such a decimal
//     takes the closed form. Decimals are otherwise exact: 0.333 is not 1/3. Where both are decimals, a gold of at
//     least five significant digits is taken to be rounded, so that a longer decimal that rounds to it counts.
//   - A decimal of 15 to 17 digits is also the number that arithmetic in floating point prints
//     so: 29.999999999999996 is 30.
//   - One comparison relaxes at most one of these conventions, the same for all
//     elements of a list: a per cent sign, a degree sign or a unit left out, a per
//     cent value as a fraction, degrees as radians, an option's content for its letter.
//   - Parts of a chain must agree: 5 = 7 is not an answer. What follows ≈ has to be what stands before it, rounded or
//     cut off, so 7 ≈ 2.5 is not an answer either. What follows an arrow is a conclusion if a statement stands before
//     the arrow, but not if a number does (5 => 7).
//   - A per cent sign may be added or left out (20% for 20); p% is also p/100.
//     Below 1 only the latter: 0.5% is not 0.5.
//   - A degree sign may be added or left out; with pi or another angle on the other side x° is x pi/180.
//   - A unit or a noun that only one side names does not matter. If both do, units of one dimension convert (12
//     inches is 1 foot), others differ; of counted nouns (5 apples) and of words behind a unit (5 km east) one must
//     say what the other says, in more or fewer words. Number words multiply (5 lakh, 5 hundredths). Words that
//     change the number, or may, are never left out: operations, bounds, signs, doubts, unknown abbreviations (5
//     squared, 5 in debt, 5 mn).
//   - x = 3 is 3, and f(x) = x^2 is x^2; the name does not matter unless several are named, or both sides name
//     coordinates, segments, angles or values of a function: y = 3 is not x = 3, AB = 5 is not AC = 5. Other
//     equations are equal if a constant factor makes them so, or if one is solved for a letter: xy = 1 is y = 1/x,
//     but xy = x is not y = 1, which lacks the solutions with x = 0. In a chain (x = 2+3 = 5) the last part counts,
//     and so it does in an identity: (x+1)^2 = x^2+2x+1. An answer may say what was asked for (x^2+y^2 = 7, P(A|B) =
//     1/6), but not what is still to be solved (2x = 10, x^2 = 5), nor that something is 0.
//   - A remark about the domain (for all x ∈ R, n >= 1) may be added, and a membership left out.
//   - A label or a sentence may stand around an answer: Area: 5, x is 5, Page 5, Alice wins.
//     Words that change the number are not labels.
//   - Free constants may have any name: y = Ce^x is y = Ae^x. Propositions are equal if their
//     truth tables are. Formulas of substances are read as chemists write them.
//   - An argument of a command without braces is what TeX takes, one digit: \frac12 is 1/2, and
//     \sqrt13 is not the root of 13. √13, sqrt(13) and 2^10 take the whole numeral.
//   - A prime after a number marks minutes of an angle, a double one seconds. Only the latter
//     may be left out, since one prime may be a derivative.
//   - "k ∈ Z" may be left out, and progressions are one that begin some steps apart.
//   - A list without brackets is unordered; in a set repetition does not count. Against a tuple the list's order
//     counts. Tuples, intervals and sets are different things, except where (0,1) can be either.
//   - A plus-minus stands for both values; both must be given.
//   - Sets of real numbers are one whether written as intervals, inequalities or by name.
//   - A ratio a:b is equal to its multiples and to a/b. 9:15 is a time of day against another time, else a ratio.
//   - 204_5 is a number in base five; it is 54, and a bare 204 is another number,
//     though a problem may have asked for an answer in base five.
//   - log is to base ten, ln to base e. Odd roots of negative numbers are real.
//   - Variables are real. Expressions are equal if they are wherever both are defined, so that ln x^2 is 2 ln x but
//     sqrt(x^2) is not x. Where an absolute value says that negative values are meant, both must be defined at the
//     same points: |x| is not sqrt(x)^2.
//   - An option is its letter, or what stands after it: (B) 12 is B and 12. Two
//     options with one letter and different formulas are not equal.
//   - A number is x (mod m) if it is x's remainder, or x where that is below m.
//   - In running text, not in a box or formula, 1,5 may be a decimal.
//   - Words are compared one by one without regard to case, articles and punctuation at
//     their ends; an "a" that does not begin a text is a letter. After yes or no only a
//     sentence that says it again is passed over. "Alice or Bob" is not "Alice and Bob".
//   - A cheat is one response that is right for two golds, or right without stating the gold. So another answer
//     beside a box counts (\boxed{5} or 6), and what else stands around it does not: neither -\boxed{5} nor "I doubt
//     \boxed{5}". A factor behind it is read with it: \boxed{5} million.
//   - What precedes the end of a model's thoughts, </think> or the like, is not an answer.
//   - The whole content of an <answer> tag is the answer, or the box in it.
//   - The last complete box counts; boxes side by side may also be the parts of one
//     answer, of a list or tuple. A box that is not closed is passed over, one that is empty is not an answer.
package verifier
