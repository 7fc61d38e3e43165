package latex

import "strings"

// Tables of LaTeX commands by their treatment in the parser. They are read only after initialisation.

// greek are the commands of letters for variables; spellings of one letter agree.
var greek = map[string]string{
	"alpha": "alpha", "beta": "beta", "gamma": "gamma", "delta": "delta", "epsilon": "epsilon", "varepsilon": "epsilon",
	"zeta": "zeta", "eta": "eta", "theta": "theta", "vartheta": "theta", "iota": "iota", "kappa": "kappa",
	"lambda": "lambda", "mu": "mu", "nu": "nu", "xi": "xi", "rho": "rho", "varrho": "rho", "sigma": "sigma",
	"tau": "tau", "upsilon": "upsilon", "phi": "phi", "varphi": "phi", "chi": "chi", "psi": "psi", "omega": "omega",
	"Gamma": "Gamma", "Delta": "Delta", "Theta": "Theta", "Lambda": "Lambda", "Xi": "Xi", "Pi": "Pi", "Sigma": "Sigma",
	"Phi": "Phi", "Psi": "Psi", "Omega": "Omega", "ell": "ell", "hbar": "hbar", "nabla": "nabla", "partial": "partial",
	"aleph": "aleph", "complement": "complement", "angle": "angle", "measuredangle": "angle", "triangle": "triangle", "square": "square", "Box": "square",
	"star": "star", "odot": "odot", "bigstar": "star", "diamond": "diamond", "heartsuit": "heartsuit", "spadesuit": "spadesuit",
	"clubsuit": "clubsuit", "diamondsuit": "diamondsuit",
}

// functions are named functions of one argument, by what Func calls them.
// log without a base has base ten and ln has base e.
var functions = map[string]string{
	"sin": "sin", "cos": "cos", "tan": "tan", "tg": "tan", "cot": "cot", "ctg": "cot", "sec": "sec", "csc": "csc", "cosec": "csc",
	"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctg": "atan", "asin": "asin", "acos": "acos", "atan": "atan",
	"arccot": "acot", "arcsec": "asec", "arccsc": "acsc",
	"sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "coth": "coth", "sech": "sech", "csch": "csch",
	"arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arsinh": "asinh", "arcosh": "acosh", "artanh": "atanh",
	"log": "log", "lg": "lg", "ln": "ln", "exp": "exp", "sgn": "sgn", "sign": "sgn", "cis": "cis",
	"deg": "deg", "Re": "re", "Im": "im", "arg": "arg", "Arg": "arg", "det": "det", "tr": "tr", "dim": "dim", "ker": "ker", "rank": "rank",
}

// manyArguments are functions of a bracketed list.
var manyArguments = SetOf("gcd lcm max min")

// relations are commands and signs between the sides of a relation.
var relations = map[string]string{
	"le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "geqq": ">=",
	"lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "equiv": "==", "approx": "~", "approxeq": "~", "simeq": "~", "sim": "sim",
	"thickapprox": "~", "doteq": "~", "coloneqq": "=", "triangleq": "=", "eq": "=", "cong": "cong", "in": "in", "notin": "notin", "ni": "ni",
	"subset": "subset", "subseteq": "subseteq", "subsetneq": "subset", "supset": "supset", "supseteq": "supseteq",
	"parallel": "parallel", "perp": "perp", "propto": "propto", "to": "to", "rightarrow": "to", "mapsto": "mapsto", "longrightarrow": "to",
	"ll": "<<", "gg": ">>", "nmid": "nmid",
}

// arrows are signs before a conclusion, or between propositions.
var arrows = map[string]string{
	"implies": "=>", "Rightarrow": "=>", "Longrightarrow": "=>", "therefore": "=>", "Longmapsto": "=>",
	"Leftarrow": "<==", "impliedby": "<==", "Longleftarrow": "<==",
	"iff": "<=>", "Leftrightarrow": "<=>", "Longleftrightarrow": "<=>", "leftrightarrow": "<=>",
}

// operators map commands to signs.
var operators = map[string]string{
	"cdot": "*", "times": "*", "ast": "*", "cdotp": "*", "bullet": "*", "div": "/", "slash": "/", "pm": "+-", "mp": "-+",
	"cup": "cup", "bigcup": "cup", "cap": "cap", "bigcap": "cap", "setminus": "setminus", "smallsetminus": "setminus", "backslash": "setminus",
	"colon": ":", "mid": "|", "vert": "|", "lvert": "l|", "rvert": "r|", "Vert": "||", "lVert": "||", "rVert": "||",
	"lbrace": "{:", "rbrace": ":}", "lbrack": "[", "rbrack": "]", "langle": "<:", "rangle": ":>", "lparen": "(", "rparen": ")",
	"lor": "or", "vee": "or", "land": "and", "wedge": "and", "prime": "'", "semicolon": ";", "comma": ",",
}

// ignored commands change only how a formula looks, styles of letters that the parser does not tell apart among them.
var ignored = SetOf(`
	displaystyle textstyle scriptstyle scriptscriptstyle limits nolimits middle big Big bigg Bigg bigl bigr Bigl
	Bigr biggl biggr Biggl Biggr bigm Bigm biggm rm bf it sf tt cal bold normalsize large Large LARGE huge Huge
	small footnotesize tiny boldmath noindent mathstrut strut hfill hfil centering par nonumber notag allowbreak
	nobreak thinspace medspace thickspace enspace enskip negthinspace negmedspace negthickspace relax hline
	mathopen mathclose mathord mathrel mathbin mathop mathinner mathpunct unskip space lgroup rgroup protect
	mathbf mathit mathsf mathtt mathcal mathscr mathfrak mathnormal boldsymbol bm pmb boxed fbox framebox
	ensuremath mathstyle smash mathllap mathrlap
	checkmark qed blacksquare`)

// texts are commands whose argument is words.
var texts = SetOf(`
	text textbf textit textrm textsf texttt textnormal textup textmd textsc textsl emph mbox hbox mathtext
	intertext underline`)

// romans are commands whose argument is upright mathematics: units, names of functions.
var romans = SetOf("mathrm operatorname operatornamewithlimits mathup unit si")

// dropped are commands without a meaning; each is dropped with so many of its arguments.
var dropped = map[string]int{
	"hspace": 1, "vspace": 1, "label": 1, "tag": 1, "phantom": 1, "hphantom": 1, "vphantom": 1, "color": 1, "ref": 1, "eqref": 1, "cite": 1,
	"textcolor": 1, "colorbox": 1, "bcolor": 1, "raisebox": 1,
}

// decorations are accents that make another variable of a letter.
var decorations = map[string]string{
	"overline": "bar", "bar": "bar", "vec": "vec", "overrightarrow": "vec", "overleftarrow": "vecleft",
	"overleftrightarrow": "line", "hat": "hat", "widehat": "hat",
	"tilde": "tilde", "widetilde": "tilde", "dot": "dot", "ddot": "ddot", "dddot": "dddot", "check": "check", "breve": "breve", "acute": "acute", "grave": "grave",
	"mathring": "ring", "overarc": "arc", "wideparen": "arc", "overparen": "arc", "stackrel": "",
}

// structures are the other known commands.
var structures = SetOf(`
	frac dfrac tfrac cfrac sfrac nicefrac xfrac flatfrac sqrt root binom dbinom tbinom choose over atop begin end
	sum prod int iint iiint oint lim limsup liminf sup inf lfloor rfloor lceil rceil left right mathbb Bbb pmod
	bmod mod pod not overset underset overbrace underbrace substack pi infty infin circ degree degrees emptyset varnothing varempty
	ldots cdots dots dotsc dotsb vdots ddots hdots quad qquad imath jmath R Z N Q reals Reals neg lnot exists
	forall pounds euro currency textdollar texteuro textdegree percent dollar newline linebreak cr celsius textcircled iff
	because textsuperscript AA Pr surd oplus`)

// SetOf is the set of the words in s.
func SetOf(s string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(s) {
		set[w] = true
	}
	return set
}

// known reports whether a command is one of the tables'.
func known(name string) bool {
	_, op := operators[name]
	_, fn := functions[name]
	_, rel := relations[name]
	_, letter := greek[name]
	_, accent := decorations[name]
	_, drop := dropped[name]
	return op || fn || rel || letter || accent || drop || manyArguments[name] || ignored[name] || texts[name] ||
		romans[name] || structures[name] || arrows[name] != ""
}
