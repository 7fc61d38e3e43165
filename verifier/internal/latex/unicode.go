package latex

import (
	"math/big"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// letterCommands map letters and signs beyond ASCII to their commands.
var letterCommands = map[rune]string{
	'π': "pi", '∞': "infty", '°': "degree", 'º': "degree", '˚': "degree", '√': "surd", '∅': "emptyset", 'Ø': "emptyset", 'ø': "emptyset", '⌀': "emptyset",
	'α': "alpha", 'β': "beta", 'γ': "gamma", 'δ': "delta", 'ε': "epsilon", 'ϵ': "epsilon", 'ζ': "zeta", 'η': "eta", 'θ': "theta", 'ϑ': "theta",
	'ι': "iota", 'κ': "kappa", 'λ': "lambda", 'μ': "mu", 'µ': "mu", 'ν': "nu", 'ξ': "xi", 'ρ': "rho", 'σ': "sigma", 'τ': "tau", 'υ': "upsilon",
	'φ': "phi", 'ϕ': "phi", 'χ': "chi", 'ψ': "psi", 'ω': "omega", 'Γ': "Gamma", 'Δ': "Delta", '∆': "Delta", 'Θ': "Theta", 'Λ': "Lambda",
	'Ξ': "Xi", 'Π': "Pi", 'Σ': "Sigma", 'Φ': "Phi", 'Ψ': "Psi", 'Ω': "Omega", '∑': "sum", '∏': "prod", '∫': "int", '∂': "partial", '∇': "nabla",
	'⌊': "lfloor", '⌋': "rfloor", '⌈': "lceil", '⌉': "rceil", '…': "ldots", '⋯': "ldots", '∠': "angle", '△': "triangle", 'ℓ': "ell", 'ℏ': "hbar",
	'¬': "lnot", 'ℝ': "R", 'ℤ': "Z", 'ℕ': "N", 'ℚ': "Q", '∘': "circ", '€': "euro", '₹': "rupee", '¥': "currency",
	'￥': "currency", '₽': "ruble", '₩': "KRW", '₫': "VND", '₺': "TRY", '£': "pounds", '□': "square", '℃': "celsius",
}

// letterSigns map signs beyond ASCII to their ASCII signs.
var letterSigns = map[rune]string{
	'−': "-", '–': "-", '—': "-", '‒': "-", '―': "-", '﹣': "-", '‐': "-", '‑': "-", '×': "*", '·': "*", '⋅': "*", '∙': "*", '•': "*", '✕': "*", '∗': "*",
	'÷': "/", '∕': "/", '⁄': "/", '±': "+-", '∓': "-+", '≤': "<=", '≦': "<=", '⩽': "<=", '≥': ">=", '≧': ">=", '⩾': ">=", '≠': "!=", '≈': "~", '≃': "~",
	'≡': "==", '≅': "cong", '∈': "in", '∉': "notin", '⊂': "subset", '⊆': "subseteq", '∪': "cup", '∩': "cap",
	'∖': "setminus", '→': "to", '⟶': "to", '⇒': "=>", '⟹': "=>",
	'⇔': "<=>", '⟺': "<=>", '↔': "<=>", '⇐': "<==", '∴': "=>", '⊃': "supset", '⊇': "supseteq", '∶': ":", '′': "'",
	'’': "'", '‘': "'", '″': "''", '⟨': "<:", '⟩': ":>", '〈': "<:", '〉': ":>", '∣': "|", '∥': "||", '、': ",",
	'∼': "sim", '⊥': "perp",
}

// wordSigns map signs to words.
var wordSigns = map[rune]string{'‰': "permille", '¢': "cents", '∧': "and", '∨': "or"}

var superscripts = map[rune]byte{
	'⁰': '0', '¹': '1', '²': '2', '³': '3', '⁴': '4', '⁵': '5', '⁶': '6', '⁷': '7', '⁸': '8', '⁹': '9', '⁻': '-', '⁺': '+', 'ⁿ': 'n',
}

var subscripts = map[rune]byte{
	'₀': '0', '₁': '1', '₂': '2', '₃': '3', '₄': '4', '₅': '5', '₆': '6', '₇': '7', '₈': '8', '₉': '9', '₋': '-', '₊': '+', 'ₙ': 'n',
}

var vulgar = map[rune][2]int64{
	'½': {1, 2}, '⅓': {1, 3}, '⅔': {2, 3}, '¼': {1, 4}, '¾': {3, 4}, '⅕': {1, 5}, '⅖': {2, 5}, '⅗': {3, 5}, '⅘': {4, 5}, '⅙': {1, 6}, '⅚': {5, 6},
	'⅐': {1, 7}, '⅛': {1, 8}, '⅜': {3, 8}, '⅝': {5, 8}, '⅞': {7, 8}, '⅑': {1, 9}, '⅒': {1, 10},
}

// unicode reads a character beyond ASCII: raised or lowered ones with their run, as ^{...} and _{...}, a letter as the
// word that it begins, and others as the command, the sign or the number that they stand for.
func (l *lexer) unicode() {
	r, size := utf8.DecodeRuneInString(l.src[l.pos:])
	at := l.pos
	if s := script(l.src[at:], superscripts); s != "" {
		l.scripted("^", s)
		return
	}
	if s := script(l.src[at:], subscripts); s != "" {
		l.scripted("_", s)
		return
	}
	l.pos += size
	if name, ok := letterCommands[r]; ok {
		l.emit(token{kind: command, text: name, at: at})
		return
	}
	if s, ok := letterSigns[r]; ok {
		l.emit(token{kind: sign, text: s, at: at, isCross: r == '×' || r == '✕'})
		l.countBracket(s)
		return
	}
	if w, ok := wordSigns[r]; ok {
		l.emit(token{kind: word, text: w, inText: true, at: at, symbolic: r == '∧' || r == '∨'})
		return
	}
	if v, ok := vulgar[r]; ok {
		l.emit(token{kind: number, num: &numeral{value: big.NewRat(v[0], v[1]), places: -1}, at: at})
		return
	}
	switch {
	case unicode.IsSpace(r) || r == utf8.RuneError:
		l.space = true
	case unicode.IsLetter(r):
		for l.pos < len(l.src) {
			next, n := utf8.DecodeRuneInString(l.src[l.pos:])
			ascii := next < utf8.RuneSelf && !(unicode.Is(unicode.Latin, r) && isLetter(byte(next))) // été goes on
			if ascii || !unicode.IsLetter(next) && !unicode.IsMark(next) || letterCommands[next] != "" {
				break
			}
			l.pos += n
		}
		l.emit(token{kind: word, text: l.src[at:l.pos], inText: true, at: at})
	case strings.ContainsRune("“”„«»", r):
		l.space = true
	default:
		l.emitSign(string(r))
	}
}

// spelledOut writes some characters as commands; the lower case of İ is not a plain i.
var spelledOut = strings.NewReplacer("∛", `\surd[3]`, "∜", `\surd[4]`, "İ", "i\u0307")

// circled matches numbers in circles, which are names.
var circled = regexp.MustCompile(`[①-⑳]`)

// plainWidth replaces full-width characters (U+FF01 to U+FF5E) by ASCII and drops those that have no width.
// Letters and signs absorb accents and strokes; other marks stay, since a stroke through a digit denies it.
func plainWidth(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return s
	}
	if strings.ContainsFunc(s, unicode.IsMark) {
		s = norm.NFC.String(s)
	}
	s = circled.ReplaceAllStringFunc(spelledOut.Replace(s), func(s string) string { return `\textcircled{` + norm.NFKC.String(s) + `}` })
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '！' && r <= '～':
			return r - '！' + '!'
		case r == '。' || r == '．':
			return '.'
		case r >= 0x2062 && r <= 0x2064: // invisible signs
			return rune("*,+"[r-0x2062])
		case isWidthless(r):
			return -1
		case r >= '\U0001d400' && r <= '\U0001d7ff':
			plain, _ := utf8.DecodeRuneInString(norm.NFKC.String(string(r)))
			return plain
		case unicode.Is(unicode.Nd, r):
			digit := rune(0) // digits of another script: blocks of ten, beginning with zero
			for digit < 9 && unicode.Is(unicode.Nd, r-digit-1) {
				digit++
			}
			return '0' + digit
		}
		return r
	}, s)
}

// isWidthless reports whether r leaves no mark and separates nothing.
func isWidthless(r rune) bool {
	return r >= 0x200b && r <= 0x200f || r == 0x2028 || r >= 0x202a && r <= 0x202e || r == 0x2060 || r == 0x2061 || r == 0xfeff || r == 0xad
}

// script is the ASCII of the run of raised or lowered characters s begins with.
func script(s string, table map[rune]byte) string {
	var b []byte
	for _, r := range s {
		c, ok := table[r]
		if !ok {
			break
		}
		b = append(b, c)
	}
	return string(b)
}

// scripted emits op{text} for a run of raised or lowered characters.
func (l *lexer) scripted(op, text string) {
	for range text {
		_, n := utf8.DecodeRuneInString(l.src[l.pos:])
		l.pos += n
	}
	l.emitSign(op)
	l.emitSign("{")
	sub := lexer{src: text, tokens: l.tokens}
	for sub.pos < len(sub.src) {
		sub.next()
	}
	l.tokens = sub.tokens
	l.emitSign("}")
}
