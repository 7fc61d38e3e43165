package data

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"onering/tokenize"
)

// CheckOptions say how a dataset is checked. The caller brings the tokenizer and
// the parser of answers.
type CheckOptions struct {
	Options
	// Tokens counts the tokens of a prompt; nil leaves the lengths out.
	Tokens func(Problem) (int, error)
	// Template is what goes around problems; the columns that it names must be there.
	Template tokenize.Template
	// Parse returns an error for an answer that cannot be parsed; nil leaves that
	// check out. A row is reported if none of its answers can be parsed.
	Parse func(answer string) error
	// Extract is the rule by which the reward finds answers in responses, "" if it has none.
	Extract string
	// Examples is how many rows each finding names; 0 means 5.
	Examples int
}

// A checkReport says what is wrong with a dataset.
type checkReport struct {
	Report
	DuplicateIDs     finding       `json:"duplicate_ids"`     // rows with the id of an earlier row
	DuplicatePrompts finding       `json:"duplicate_prompts"` // rows with the prompt of an earlier row, blanks aside
	Conflicts        finding       `json:"conflicts"`         // rows among DuplicatePrompts with other answers
	Bad              finding       `json:"bad"`               // rows dropped, see Report.Dropped
	Unparsed         finding       `json:"unparsed"`          // rows whose answers the verifier cannot parse
	Untokenized      finding       `json:"untokenized"`       // rows whose prompts the tokenizer refuses
	Lengths          *tokenLengths `json:"lengths,omitempty"` // the lengths of prompts in tokens
	Lost             finding       `json:"lost_backslashes"`  // rows with answers in LaTeX without its backslashes
	NoAnswer         finding       `json:"no_answer"`         // rows whose answer says that there is none, such as "proof"
	Prose            finding       `json:"prose"`             // rows whose answer is a text of several sentences
	Unfilled         finding       `json:"unfilled"`          // rows without a column that the template names
	// Messages counts the prompts that are lists of messages, Forms those that ask for the
	// answer in a form, by its name.
	Messages int            `json:"messages"`
	Several  int            `json:"several_answers"` // rows with several answers
	Forms    map[string]int `json:"forms,omitempty"`
	extract  string         // see CheckOptions.Extract
}

// The forms in which prompts ask for the answer, and the rules of extraction that read each.
var forms = []struct {
	name, readBy string
	asked        *regexp.Regexp
}{
	{`\boxed{}`, "boxed auto last", regexp.MustCompile(`\\(?:boxed|fbox)`)},
	{"<answer>", "tag auto last", regexp.MustCompile(`(?i)<answer>`)},
	{"####", "auto last hashes", regexp.MustCompile(`####`)},
	{"Answer:", "auto last phrase", regexp.MustCompile(`(?i)\banswer\W{0,3}:\W*[\w$\\]`)},
	{"the answer is", "auto last phrase", regexp.MustCompile(`(?i)["'“‘]\W{0,4}(?:so |therefore,? )?the (?:final |correct )?answer is`)},
	{"JSON", "", regexp.MustCompile(`(?i)["']answer["']\s*:`)},
}

// lostBackslash finds LaTeX whose backslashes were lost to the escapes of a string:
// "\frac" in Python or JSON begins with a form feed, and other commands leave no trace.
var lostBackslash = regexp.MustCompile(`[\x07\x08\x0b\x0c\r\t][a-z]|(?:^|[^\\A-Za-z])(?:[dt]?frac|rac|sqrt|text|ext|mathrm|mathbf|boxed|oxed|begin|egin|overline|binom)\{|(?:^|[^\\A-Za-z])[dt]?frac\d|(?:^|[^\\A-Za-z])(?:infty|cdot|leq|geq)\b`)

// noneSaid finds answers which state that there is no answer.
var noneSaid = regexp.MustCompile(`(?i)^(?:proof|prove|not ?found|n/?a|nan|null|none|unknown|missing|error|tbd|todo|no answer|see (?:the )?solution|[?-]+)\.?$`)

// A finding counts rows with one fault, and names the first of them.
type finding struct {
	Rows     int      `json:"rows"`
	Examples []string `json:"examples,omitempty"`
}

// tokenLengths is a distribution of lengths.
type tokenLengths struct {
	Mean   float64 `json:"mean"`
	Median int     `json:"median"`
	P95    int     `json:"p95"`
	P99    int     `json:"p99"`
	Max    int     `json:"max"`
	// Counts[i] rows are shorter than 2^i and not shorter than half of that; Counts[0] is
	// for length 0.
	Counts []int `json:"counts"`
}

// Check reads a whole dataset and reports what is wrong with its rows. Lines of text
// files that cannot be read are reported too; a file whose rest cannot be read is an
// error. To find duplicates it needs about a hundred bytes of memory a row.
func Check(path string, o CheckOptions) (checkReport, error) {
	c := checker{
		report: checkReport{extract: o.Extract, Forms: map[string]int{}},
		opts:   o, seed: maphash.MakeSeed(), examples: o.Examples,
		ids: map[uint64]place{}, prompts: map[uint64]place{}, lengths: map[int]int{},
	}
	if c.examples == 0 {
		c.examples = 5
	}
	given := o.Options.OnBad
	o.Options.OnBad = func(err error) {
		c.addFinding(&c.report.Bad, err.Error())
		if given != nil {
			given(err)
		}
	}
	o.Options.skipBadLines = true
	r, err := Open(path, o.Options)
	if err != nil {
		return checkReport{}, err
	}
	defer r.Close()
	for {
		p, err := r.Next() // rows that are dropped come to OnBad
		if err == io.EOF {
			break
		}
		if err != nil {
			return checkReport{}, err
		}
		c.check(p)
	}
	c.report.Report = r.Report()
	if len(c.lengths) > 0 {
		c.report.Lengths = summarize(c.lengths)
	}
	return c.report, nil
}

type checker struct {
	opts     CheckOptions
	seed     maphash.Seed
	examples int
	report   checkReport
	ids      map[uint64]place // by hash; two ids of 10^7 collide in one of 400,000 checks
	prompts  map[uint64]place
	lengths  map[int]int
}

// A place is where an id or prompt was seen first.
type place struct {
	file    string
	line    int
	answers uint64
}

func (c *checker) addFinding(f *finding, example string) {
	f.Rows++
	if len(f.Examples) < c.examples {
		f.Examples = append(f.Examples, example)
	}
}

// recordPlace records the place of an id or prompt. If it was recorded before, seen returns its earlier
// place.
func recordPlace(places map[uint64]place, what uint64, here place) (first place, again bool) {
	if first, again = places[what]; !again {
		places[what] = here
	}
	return first, again
}

// check adds a problem to the report.
func (c *checker) check(p Problem) {
	at := fmt.Sprintf("%s:%d", p.File, p.Line)
	here := place{p.File, p.Line, maphash.String(c.seed, strings.Join(p.Answers, "\x00"))}

	if first, again := recordPlace(c.ids, maphash.String(c.seed, p.ID), here); again {
		c.addFinding(&c.report.DuplicateIDs, fmt.Sprintf("%s has the id %q of %s:%d", at, p.ID, first.file, first.line))
	}
	var words maphash.Hash // of the prompt, in which blanks do not count
	words.SetSeed(c.seed)
	for word := range strings.FieldsSeq(p.Text) {
		words.WriteString(word)
		words.WriteByte(' ')
	}
	if first, again := recordPlace(c.prompts, words.Sum64(), here); again {
		c.addFinding(&c.report.DuplicatePrompts, fmt.Sprintf("%s has the prompt of %s:%d", at, first.file, first.line))
		if first.answers != here.answers {
			c.addFinding(&c.report.Conflicts, fmt.Sprintf("%s has the prompt of %s:%d, and the answer %q", at, first.file, first.line, p.Answers))
		}
	}
	if p.Chat != nil {
		c.report.Messages++
	}
	for _, f := range forms {
		if f.asked.MatchString(p.Text) {
			c.report.Forms[f.name]++
		}
	}
	if slices.ContainsFunc(p.Answers, lostBackslash.MatchString) {
		c.addFinding(&c.report.Lost, fmt.Sprintf("%s: %q", at, p.Answers))
	}
	if slices.ContainsFunc(p.Answers, noneSaid.MatchString) {
		c.addFinding(&c.report.NoAnswer, fmt.Sprintf("%s: %q", at, p.Answers))
	}
	if c.opts.Parse != nil && len(p.Answers) > 0 {
		var err error
		if !slices.ContainsFunc(p.Answers, func(answer string) bool { err = c.opts.Parse(answer); return err == nil }) {
			c.addFinding(&c.report.Unparsed, fmt.Sprintf("%s: %q: %v", at, p.Answers, err))
		}
	}
	if len(p.Answers) > 1 {
		c.report.Several++
	}
	if !c.opts.AsWritten && slices.ContainsFunc(p.Answers, isProse) {
		c.addFinding(&c.report.Prose, fmt.Sprintf("%s: %.80q", at, p.Answers))
	}
	if _, err := c.opts.Template.Fill(p.Fields.Shown); err != nil {
		c.addFinding(&c.report.Unfilled, fmt.Sprintf("%s: %v", at, err))
		return // there is no prompt to measure
	}
	if c.opts.Tokens != nil {
		n, err := c.opts.Tokens(p)
		if err != nil {
			c.addFinding(&c.report.Untokenized, fmt.Sprintf("%s: %v", at, err))
			return
		}
		c.lengths[n]++
	} else if err := p.refuseConversation(c.opts.Template); err != nil && c.opts.Template.Name != "" { // without a tokenizer it only checks a given template
		c.addFinding(&c.report.Untokenized, fmt.Sprintf("%s: %v", at, err))
	}
}

// summarize makes a distribution of count, which has the number of prompts of each length.
func summarize(count map[int]int) *tokenLengths {
	l := &tokenLengths{}
	sorted := slices.Sorted(maps.Keys(count))
	n, sum := 0, 0
	for _, length := range sorted {
		n += count[length]
		sum += length * count[length]
		bin := bits.Len(uint(length))
		for len(l.Counts) <= bin {
			l.Counts = append(l.Counts, 0)
		}
		l.Counts[bin] += count[length]
		l.Max = length
	}
	if n == 0 {
		return l
	}
	l.Mean = float64(sum) / float64(n)
	// A quantile is the smallest length that so many per cent do not exceed.
	quantile := func(percent int) int {
		below := 0
		for _, length := range sorted {
			if below += count[length]; below*100 >= n*percent {
				return length
			}
		}
		return l.Max
	}
	l.Median, l.P95, l.P99 = quantile(50), quantile(95), quantile(99)
	return l
}

// Refused returns the error for which training does not begin with the dataset at a path.
func (r checkReport) Refused(path string) error {
	unfit := r.Unfilled.Rows + r.Untokenized.Rows
	switch bad := r.Dropped[unreadableLine]; {
	case bad > 0:
		return fmt.Errorf("data: %s: training stops at a line that cannot be read, and there are %d", path, bad)
	case unfit > 0:
		return fmt.Errorf("data: %s: training stops at a row of which the template makes no prompt, and there are %d", path, unfit)
	}
	return r.Report.refused(path)
}

// OK says whether nothing wrong was found.
func (r checkReport) OK() bool {
	return !slices.ContainsFunc(r.findings(), func(f namedFinding) bool { return f.Rows > 0 })
}

type namedFinding struct {
	name string
	finding
}

func (r checkReport) findings() []namedFinding {
	return []namedFinding{
		{"dropped", r.Bad},
		{"with the id of an earlier row", r.DuplicateIDs},
		{"with the prompt of an earlier row", r.DuplicatePrompts},
		{"of them with another answer", r.Conflicts},
		{"with an answer the verifier cannot parse", r.Unparsed},
		{"with an answer in LaTeX that has lost its backslashes", r.Lost},
		{"with an answer that says there is none", r.NoAnswer},
		{"with an answer that is a text of several sentences: name a column with the answer alone", r.Prose},
		{"without a column that the template names", r.Unfilled},
		{"with a prompt that the template or the tokenizer refuses", r.Untokenized},
	}
}

// formsAsked says in which forms prompts ask for the answer, and where the reward looks for it.
func (r checkReport) formsAsked() string {
	var list []string
	unread := false // the reward does not look for one of the forms
	for _, f := range forms {
		if n := r.Forms[f.name]; n > 0 {
			list = append(list, fmt.Sprintf("%s in %d prompts", f.name, n))
			unread = unread || !slices.Contains(strings.Fields(f.readBy), r.extract)
		}
	}
	switch {
	case r.Rows == 0 || r.extract == "":
		return ""
	case len(list) == 0:
		return fmt.Sprintf("no prompt names a form of the answer; the reward reads %s\n", readFrom(r.extract))
	case !unread:
		return fmt.Sprintf("prompts name the form of the answer: %s; the reward reads %s\n", strings.Join(list, ", "), readFrom(r.extract))
	}
	return fmt.Sprintf("prompts name the form of the answer: %s; but the reward reads %s: set reward.extract = \"auto\", which reads all but JSON\n",
		strings.Join(list, ", "), readFrom(r.extract))
}

// readFrom decodeIfThere where a rule of extraction finds the answer.
func readFrom(rule string) string {
	return cmp.Or(map[string]string{
		"boxed": `the last \boxed{} alone (extract = "boxed")`, "tag": `<answer> tags alone (extract = "tag")`,
		"auto": `tags, boxes and running text (extract = "auto")`, "last": `the last expression (extract = "last")`,
	}[rule], fmt.Sprintf("extract = %q", rule))
}

// String writes the report for people, over several lines.
func (r checkReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\ncolumns: prompt %q, answer %q, id %q\n", r.Report, r.Prompt, r.Answer, r.ID)
	for _, f := range r.findings() {
		if f.Rows == 0 {
			continue
		}
		fmt.Fprintf(&b, "%d rows %s\n", f.Rows, f.name)
		for _, e := range f.Examples {
			fmt.Fprintf(&b, "    %s\n", e)
		}
		if more := f.Rows - len(f.Examples); more > 0 {
			fmt.Fprintf(&b, "    and %d more\n", more)
		}
	}
	if r.OK() && r.Rows > 0 {
		b.WriteString("nothing wrong found\n")
	}
	if r.Messages > 0 {
		fmt.Fprintf(&b, "%d prompts are lists of messages: the templates auto and chat render them with the model's chat template\n", r.Messages)
	}
	if r.Several > 0 {
		fmt.Fprintf(&b, "%d rows have several answers, each of which is right alone\n", r.Several)
	}
	if text := r.NotRead(); text != "" {
		fmt.Fprintln(&b, text)
	}
	b.WriteString(r.formsAsked())
	if l := r.Lengths; l != nil {
		fmt.Fprintf(&b, "prompt tokens: mean %.1f, median %d, 95 %% %d, 99 %% %d, most %d\n", l.Mean, l.Median, l.P95, l.P99, l.Max)
		most := slices.Max(append([]int{1}, l.Counts...))
		for i, n := range l.Counts {
			if n > 0 {
				from, to := 1<<i>>1, 1<<i-1                                                                // see tokenLengths.Counts
				fmt.Fprintf(&b, "%7d-%-7d %8d %s\n", from, to, n, strings.Repeat("#", (n*40+most-1)/most)) // 40 for the most
			}
		}
	}
	return b.String()
}
