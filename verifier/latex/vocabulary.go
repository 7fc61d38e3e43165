package latex

// Tables of LaTeX commands by what the parser does with them. They are read
// only after initialisation.

// greek are letters that stand for variables; spellings of one letter agree.
var greek = map[string]string{
	"alpha": "alpha", "beta": "beta", "gamma": "gamma", "delta": "delta", "epsilon": "epsilon", "varepsilon": "epsilon",
	"zeta": "zeta", "eta": "eta", "theta": "theta", "vartheta": "theta", "iota": "iota", "kappa": "kappa",
	"lambda": "lambda", "mu": "mu", "nu": "nu", "xi": "xi", "rho": "rho", "varrho": "rho", "sigma": "sigma",
	"tau": "tau", "upsilon": "upsilon", "phi": "phi", "varphi": "phi", "chi": "chi", "psi": "psi", "omega": "omega",
	"Gamma": "Gamma", "Delta": "Delta", "Theta": "Theta", "Lambda": "Lambda", "Xi": "Xi", "Pi": "Pi", "Sigma": "Sigma",
	"Phi": "Phi", "Psi": "Psi", "Omega": "Omega", "ell": "ell", "hbar": "hbar", "nabla": "nabla", "partial": "partial",
	"aleph": "aleph", "angle": "angle", "measuredangle": "angle", "triangle": "triangle", "square": "square", "Box": "square",
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
	"Re": "re", "Im": "im", "arg": "arg", "Arg": "arg", "det": "det", "tr": "tr", "dim": "dim", "ker": "ker", "rank": "rank",
}

// manyArguments are functions of a bracketed list.
var manyArguments = map[string]string{"gcd": "gcd", "lcm": "lcm", "max": "max", "min": "min"}

// relations are commands and signs between the sides of a relation.
var relations = map[string]string{
	"le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "geqq": ">=",
	"lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "equiv": "==", "approx": "~", "approxeq": "~", "simeq": "~", "sim": "sim",
	"thickapprox": "~", "doteq": "~", "coloneqq": "=", "triangleq": "=", "eq": "=", "cong": "cong", "in": "in", "notin": "notin", "ni": "ni",
	"subset": "subset", "subseteq": "subseteq", "subsetneq": "subset", "supset": "supset", "supseteq": "supseteq",
	"parallel": "parallel", "perp": "perp", "propto": "propto", "to": "to", "rightarrow": "to", "mapsto": "mapsto", "longrightarrow": "to",
	"ll": "<<", "gg": ">>", "nmid": "nmid",
}

// arrows say that what follows is the conclusion.
var arrows = map[string]bool{
	"implies": true, "Rightarrow": true, "Longrightarrow": true, "iff": true, "Leftrightarrow": true, "Longleftrightarrow": true,
	"therefore": true, "Longmapsto": true,
}

// operators are commands that stand for a sign.
var operators = map[string]string{
	"cdot": "*", "times": "*", "ast": "*", "cdotp": "*", "bullet": "*", "div": "/", "slash": "/", "pm": "+-", "mp": "-+",
	"cup": "cup", "bigcup": "cup", "cap": "cap", "bigcap": "cap", "setminus": "setminus", "smallsetminus": "setminus", "backslash": "setminus",
	"colon": ":", "mid": "|", "vert": "|", "lvert": "l|", "rvert": "r|", "Vert": "||", "lVert": "||", "rVert": "||",
	"lbrace": "{:", "rbrace": ":}", "lbrack": "[", "rbrack": "]", "langle": "<:", "rangle": ":>", "lparen": "(", "rparen": ")",
	"lor": "or", "vee": "or", "land": "and", "wedge": "and", "prime": "'", "semicolon": ";", "comma": ",",
}

// ignored commands change only how a formula looks.
var ignored = map[string]bool{
	"displaystyle": true, "textstyle": true, "scriptstyle": true, "scriptscriptstyle": true, "limits": true, "nolimits": true,
	"middle": true, "big": true, "Big": true, "bigg": true, "Bigg": true, "bigl": true, "bigr": true, "Bigl": true, "Bigr": true,
	"biggl": true, "biggr": true, "Biggl": true, "Biggr": true, "bigm": true, "Bigm": true, "biggm": true,
	"rm": true, "bf": true, "it": true, "sf": true, "tt": true, "cal": true, "bold": true, "normalsize": true, "large": true, "Large": true,
	"LARGE": true, "huge": true, "Huge": true, "small": true, "footnotesize": true, "tiny": true, "boldmath": true, "noindent": true,
	"mathstrut": true, "strut": true, "hfill": true, "hfil": true, "centering": true, "par": true, "nonumber": true, "notag": true,
	"allowbreak": true, "nobreak": true, "thinspace": true, "medspace": true, "thickspace": true, "enspace": true, "enskip": true,
	"negthinspace": true, "negmedspace": true, "negthickspace": true, "relax": true, "hline": true, "mathopen": true, "mathclose": true,
	"mathord": true, "mathrel": true, "mathbin": true, "mathop": true, "mathinner": true, "mathpunct": true, "unskip": true, "space": true,
	"lgroup": true, "rgroup": true, "protect": true,
	// Styles of a letter that the parser does not tell apart.
	"mathbf": true, "mathit": true, "mathsf": true, "mathtt": true, "mathcal": true, "mathscr": true, "mathfrak": true, "mathnormal": true,
	"boldsymbol": true, "bm": true, "pmb": true, "boxed": true, "fbox": true, "framebox": true, "ensuremath": true, "cancel": true, "bcancel": true,
	"mathstyle": true, "underbrace": true, "overbrace": true, "smash": true, "mathllap": true, "mathrlap": true,
}

// texts are commands whose argument is words.
var texts = map[string]bool{
	"text": true, "textbf": true, "textit": true, "textrm": true, "textsf": true, "texttt": true, "textnormal": true, "textup": true,
	"textmd": true, "textsc": true, "textsl": true, "emph": true, "mbox": true, "hbox": true, "mathtext": true, "intertext": true, "underline": true,
}

// romans are commands whose argument is upright mathematics: units, names of functions.
var romans = map[string]bool{"mathrm": true, "operatorname": true, "operatornamewithlimits": true, "mathup": true, "unit": true, "si": true}

// dropped are commands that go with so many arguments.
var dropped = map[string]int{
	"hspace": 1, "vspace": 1, "hskip": 0, "label": 1, "tag": 1, "phantom": 1, "hphantom": 1, "vphantom": 1, "color": 1, "ref": 1, "eqref": 1, "cite": 1,
	"textcolor": 1, "colorbox": 1, "bcolor": 1, "raisebox": 1, "kern": 0, "mkern": 0, "mskip": 0,
}

// decorations are accents that make another variable of a letter.
var decorations = map[string]string{
	"overline": "bar", "bar": "bar", "vec": "vec", "overrightarrow": "vec", "overleftarrow": "vecleft", "overleftrightarrow": "line", "hat": "hat", "widehat": "hat",
	"tilde": "tilde", "widetilde": "tilde", "dot": "dot", "ddot": "ddot", "dddot": "dddot", "check": "check", "breve": "breve", "acute": "acute", "grave": "grave",
	"mathring": "ring", "overarc": "arc", "wideparen": "arc", "overparen": "arc", "stackrel": "",
}

// structures are the other commands that the parser knows.
var structures = map[string]bool{
	"frac": true, "dfrac": true, "tfrac": true, "cfrac": true, "sfrac": true, "nicefrac": true, "xfrac": true, "flatfrac": true, "sqrt": true, "root": true,
	"binom": true, "dbinom": true, "tbinom": true, "choose": true, "over": true, "atop": true, "begin": true, "end": true,
	"sum": true, "prod": true, "int": true, "iint": true, "iiint": true, "oint": true, "lim": true, "limsup": true, "liminf": true, "sup": true, "inf": true,
	"lfloor": true, "rfloor": true, "lceil": true, "rceil": true, "left": true, "right": true, "mathbb": true, "Bbb": true,
	"pmod": true, "bmod": true, "mod": true, "pod": true, "not": true, "overset": true, "underset": true, "substack": true,
	"pi": true, "infty": true, "infin": true, "circ": true, "degree": true, "degrees": true, "emptyset": true, "varnothing": true, "varempty": true,
	"ldots": true, "cdots": true, "dots": true, "dotsc": true, "dotsb": true, "vdots": true, "ddots": true, "hdots": true,
	"quad": true, "qquad": true, "imath": true, "jmath": true, "R": true, "Z": true, "N": true, "Q": true, "reals": true, "Reals": true,
	"neg": true, "lnot": true, "exists": true, "forall": true, "pounds": true, "euro": true, "textdollar": true, "texteuro": true, "textdegree": true, "percent": true, "dollar": true,
	"newline": true, "linebreak": true, "cr": true, "celsius": true, "textcircled": true, "iff": true, "because": true,
}

// known reports whether a command is one of the tables'.
func known(name string) bool {
	_, op := operators[name]
	_, fn := functions[name]
	_, rel := relations[name]
	_, letter := greek[name]
	_, accent := decorations[name]
	_, drop := dropped[name]
	_, many := manyArguments[name]
	return op || fn || rel || letter || accent || drop || many || ignored[name] || texts[name] || romans[name] || structures[name] || arrows[name]
}
