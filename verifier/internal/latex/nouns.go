package latex

import (
	"slices"
	"strings"
)

// Droppable reports whether a counted noun (a Unit's name without its #) may be left out
// of an answer: "5 red apples" is 5. Any noun may, except words that change the number:
// operations, bounds, signs, doubts, and abbreviations that may be numbers.
func Droppable(noun string) bool {
	words := strings.Fields(noun)
	if len(words) == 0 || boundWords[words[0]] || strings.HasSuffix(words[0], "ly") && len(words[0]) > 5 &&
		!harmlessAdverbs[words[0]] || strings.HasPrefix(noun, "in ") && !inside[words[1]] {
		return false
	}
	return !slices.ContainsFunc(words, changesNumber) && (len(words) > 1 || !multiple[words[0]] &&
		(!strings.HasSuffix(words[0], "ed") || len(words[0]) <= 4 || harmlessParticiples[words[0]])) // 5 inverted is another number
}

// Changes reports whether words behind a measure change it: 5 dollars short.
func Changes(noun string) bool {
	words := strings.Fields(noun)
	return slices.ContainsFunc(words, changesNumber) || len(words) == 1 && boundWords[words[0]] && words[0] != "up" && words[0] != "down"
}

// changesNumber reports whether a word of a phrase beside a number changes the meaning of the number.
func changesNumber(w string) bool {
	if _, ok := multiplier(w); ok || isShare(w) || changing[w] || numberWords[w] > 1 {
		return true
	}
	switch {
	case w[0] >= 0x80:
		return strings.HasPrefix(w, "的") || strings.HasPrefix(w, "の") || strings.ContainsAny(strings.ReplaceAll(w, "不同", ""), changingCharacters) || changing[w]
	case len(w) < 3 && w != "#", len(w) < 5 && !strings.ContainsAny(w, "aeiouy'"):
		return !abbreviations[w] // mn, bns
	}
	return strings.HasSuffix(w, "n't") || slices.ContainsFunc(changingStems, func(stem string) bool { return strings.HasPrefix(w, stem) })
}

// isShare reports whether w is a denominator in words: thirds, hundredths.
func isShare(w string) bool {
	w = strings.TrimSuffix(w, "s")
	if fractionWords[w] > 0 || w == "halve" {
		return w != "second"
	}
	stem, ok := strings.CutSuffix(w, "th")
	stem = strings.Replace(stem, "ie", "y", 1)
	return ok && (numberWords[stem] > 0 || multipliers[stem] > 0)
}

// boundWords are words that make a bound, a sign or a condition of the number before them;
// inside are those after "in" that do not.
var (
	boundWords = SetOf(`above across after against along among around as at away back before behind below beneath beside between beyond by
		down from inside into like near off onto out outside over past short since through till to toward towards under until up upon via with within
		und et y e et o ou oder или и al au aux à del zum hoch`)
	inside = SetOf("total all sum each every change tips sales profit savings cash")
)

// multiple are words that mean a number of something: 5 pairs is 10.
var multiple = SetOf("maximum minimum max min one ish century sigma")

// changing are words that change the number beside them, anywhere in a phrase.
var changing = SetOf(`
	is are was were be isn't not no nope nah never none neither nor nothing hardly barely but however instead rather otherwise else except without against unless
	than least most almost nearly below beyond exceed exceeds upwards downwards onwards plus minus times modulo radix logarithm factorial percent percentage percents fold magnitude
	basis bp bps squared cubed twice thrice double too upside mil mill mio bil mrd thou doz zillion negative debt deficit hundredweight mega giga nil googol arrears owed owing overdrawn backward backwards flipped mirrored shy fail fails duizend mila tusen
	seem struck crossed turned few out wrong false untrue invalid impossible unlikely maybe perhaps probable approaching excluding excluded counting rising growing zero infinity binary octal hex hexadecimal
	nicht nein kein keine falsch ohne weniger mehr tausend million millionen milliarde milliarden dutzend hundert halb halbe prozent drittel viertel
	pas non jamais faux moins mille milliers milliard milliards douzaine douzaines demi demie tiers ciento más menos millón millone docena medio media tercio tampoco nunca falso
	не нет ни неверно минус тыс млн млрд тысяча тысяч тысячи миллион миллиона миллионов миллиард дюжина дюжин больше меньше более менее половина процент процентов`)

// changingStems begin words that change the number, too.
var changingStems = []string{"doubl", "tripl", "quadrupl", "halv", "revers", "inver", "negat", "opposit",
	"subtract", "multipli", "wrong", "fals", "divid", "decreas", "incorrect", "mistaken", "erron", "reject", "reciproc"}

// changingCharacters change it in scripts without spaces between words.
const changingCharacters = "十百千万萬亿億兆半倍成折之不非没無负負多余餘未超近约約至到比以또니만억천백십이상하미초과반反错錯假"

// abbreviations are short words that are not numbers.
var abbreviations = SetOf("a an in of on to at by he she it we my i and or al el la le de du des un os tv cd " +
	"id pc pt ox u su sq cu up mpg mmhg tvs cds dvds pts pcs ppl rpm fps bps dvd gym psi hymn wpm mph kph lb # s t db")

// harmlessAdverbs end in ly.
var harmlessAdverbs = SetOf("weekly monthly yearly hourly exactly approximately roughly precisely family assembly " +
	"supply butterfly dragonfly monopoly friendly elderly")

// harmlessParticiples say what is done with the counted things.
var harmlessParticiples = SetOf("needed required unused unsold saved earned wanted collected")
