package verifier

import (
	"onering/verifier/internal/rules"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// An extract is the answer that was found in a response.
type extract struct {
	texts  []string // readings of the answer, the likeliest first
	from   string   // where it was found
	whole  bool     // it is the whole running text
	reason string   // why there is no answer
}

// The places of an answer. In prose a comma may be a decimal comma; in other places it separates two numbers.
const (
	fromBoxed   = "box"
	fromTagged  = "tag"
	fromFormula = "text formula"
	fromProse   = "text"
)

// A finder looks for answers in texts and counts its steps: every byte that it reads, each time.
type finder struct{ steps int }

// thought matches the end of a model's thoughts, in the marks of several families.
var thought = regexp.MustCompile(`(?i)</(?:\w+:)?(?:think|thinking|thoughts?|reasoning|scratchpad|analysis)>|<end_working_out>|\[/think\]|◁/think▷|<\|(?:end_of_thought|/think)\|>|<\|channel\|>final[^<]*<\|message\|>|^analysis(?:[^\n]|\n)*assistantfinal`)

// thinking are parts of the words in those marks.
var thinking = [...]string{"hink", "HINK", "hought", "easoning", "scratchpad", "analysis", "working", "begin_of_box"}

// glmBox writes the box of another family of models as LaTeX.
var glmBox = strings.NewReplacer("<|begin_of_box|>", `\boxed{`, "<|end_of_box|>", "}")

// unthought returns what follows the thoughts in a response: no answer stands in them.
func (find *finder) unthought(s string) string {
	// Plain searches first, since the expression costs more than all else.
	if !rules.On("thoughts") || !strings.HasPrefix(s, "analysis") && !mentionsAny(s, []string{"</", "<|", "[/", "◁", "working_out>"}) {
		return s
	}
	find.steps += len(s)
	if !mentionsAny(s, thinking[:]) {
		return s
	}
	s = glmBox.Replace(s)
	if ends := thought.FindAllStringIndex(s, -1); len(ends) > 0 {
		return s[ends[len(ends)-1][1]:]
	}
	return s
}

// extractAnswer finds the answer in a response.
func (find *finder) extractAnswer(v Verifier, response string) extract {
	if v.Mode != Tag || !v.Strict { // the strict form has a tag directly after the thoughts
		response = find.unthought(response)
	}
	switch v.Mode {
	case Boxed:
		return find.fromBox(response)
	case Tag:
		return find.fromTag(response, v.Strict)
	case Last:
		return find.fromText(response)
	}
	tag := find.fromTag(response, false)
	if len(tag.texts) > 0 {
		return tag
	}
	if e := find.fromBox(response); len(e.texts) > 0 || e.reason != noBox {
		return e // an empty or an open box means that there is no answer
	}
	if tag.reason == emptyTag {
		return tag // so does an empty tag
	}
	return find.fromText(response)
}

const (
	noBox    = "no box"
	emptyTag = "the <answer> tag is empty"
)

// fromBox returns the content of the last complete box of s, with the text beside it that belongs to the answer, as the
// first reading. If boxes precede it in a row, all of them as one list are another reading, unless "or" stands between
// them: then all as alternatives are the only one, and no single one is right. Bounds with "or", x < 1 or x > 3, are
// one answer, so they are read like other rows.
func (find *finder) fromBox(s string) extract {
	b, ok := find.lastBox(s)
	if !ok {
		return extract{reason: noBox}
	}
	if !b.closed {
		if b, ok = find.lastClosedBox(s); !ok {
			return extract{reason: "the last box is not closed"}
		}
	}
	if clean(b.content) == "" {
		return extract{reason: "the last box is empty"}
	}
	e := extract{texts: []string{withFactor(s, b) + find.alternative(s, b)}, from: fromBoxed} // 5 million, 5 or 7
	isRelation := func(text string) bool { return mentionsAny(text, []string{"<", ">", "=", `\le`, `\ge`}) }
	if all, either := find.joinedBoxes(s, b); either && !slices.ContainsFunc(all, isRelation) {
		e.texts = []string{strings.Join(all, `\text{ or }`)}
	} else if all != nil {
		e.texts = append(e.texts, strings.Join(all, ", "))
	}
	return e
}

// fromTag returns the content of the last <answer>...</answer>, or of the box in it. Strictly,
// the tag must be as in the R1 template: "</think> <answer>" with a closing tag.
func (find *finder) fromTag(s string, strict bool) extract {
	find.steps += len(s)
	if !strings.Contains(s, "<answer>") { // much faster than to look from the end
		return extract{reason: "no <answer> tag"}
	}
	open := strings.LastIndex(s, "<answer>")
	if strict && !strings.HasSuffix(s[:open], "</think> ") {
		return extract{reason: "<answer> does not follow </think> and a space"}
	}
	content := s[open+len("<answer>"):]
	shut := strings.Index(content, "</answer>")
	if shut < 0 {
		return extract{reason: "no </answer> tag"}
	}
	if strict && strings.TrimSpace(content[shut+len("</answer>"):]) != "" {
		return extract{reason: "text after </answer>"}
	}
	content = content[:shut]
	if e := find.fromBox(content); e.reason != noBox {
		return e
	}
	if clean(content) == "" {
		return extract{reason: emptyTag}
	}
	return extract{texts: []string{find.unphrased(content)}, from: fromTagged}
}

// unphrased takes off "The answer is".
func (find *finder) unphrased(s string) string {
	if at := find.afterPhrase(s); at >= 0 && at < len(s) && clean(s[at:]) != "" {
		return s[at:]
	}
	return s
}

// clean is s without white space, math delimiters and emphasis around it.
func clean(s string) string {
	for {
		t := strings.TrimFunc(s, isBlank) // taking off one mark may uncover another: again until nothing changes
		for _, mark := range [...]string{"$", `\(`, `\[`, `\,`, `\;`, `\:`, `\!`, `\quad`, `\ `, "~", "**", "__"} {
			t = strings.TrimPrefix(t, mark)
		}
		for _, mark := range [...]string{"∎", "■", `\blacksquare`, `\qed`, "$", `\)`, `\]`, `\,`, `\;`, `\:`, `\!`, `\quad`, "~", "**", "__"} {
			// \$ at the end is currency, and \\) no delimiter.
			if rest, ok := strings.CutSuffix(t, mark); ok && (len(rest) == 0 || rest[len(rest)-1] != '\\') {
				t = rest
			}
		}
		for _, quote := range [...]string{`"`, "'", "`"} {
			if len(t) > 2 && strings.HasPrefix(t, quote) && strings.HasSuffix(t, quote) {
				t = t[1 : len(t)-1]
			}
		}
		if t == s {
			return s
		}
		s = t
	}
}

// isBlank reports whether r leaves no mark.
func isBlank(r rune) bool {
	return unicode.IsSpace(r) || r == 0 || r == 0xfeff || r >= 0x200b && r <= 0x200f || r >= 0x2060 && r <= 0x2064
}

// goldText returns the text of a gold: the boxes in it, what follows ####, or all of it. Long prose without a box is
// searched like a response. ok says whether there is any text.
func (find *finder) goldText(gold string) (text string, ok bool) {
	find.steps += len(gold)
	text = gold
	if b, ok := find.lastBox(gold); ok {
		// A gold that was cut off in its box still counts.
		text = b.content
		if all, _ := find.joinedBoxes(gold, b); all != nil {
			text = strings.Join(all, ", ")
		}
	} else if len(gold) > 300 && find.wordsIn(gold) > 20 {
		if e := find.fromText(gold); len(e.texts) > 0 {
			text = e.texts[0]
		}
	} else if i := strings.LastIndex(gold, "####"); i >= 0 {
		text = gold[i+4:]
	}
	return text, clean(text) != ""
}
