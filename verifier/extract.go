package verifier

import (
	"slices"
	"strings"
	"unicode"
)

// An extract is the answer that was found in a response.
type extract struct {
	texts []string // readings of the answer, the likeliest first
	from  string   // where it was found
	whole bool     // it is the whole running text
	// outside says that a per cent sign stands after the box.
	outside bool
	reason  string // why there is no answer
}

// The places of an answer. In prose a comma may be a decimal comma; in other places it
// separates two numbers.
const (
	fromBoxed   = "box"
	fromTagged  = "tag"
	fromFormula = "text formula"
	fromProse   = "text"
)

// A finder looks for answers in texts and counts its steps: every byte that it reads,
// each time.
type finder struct{ steps int }

// extractAnswer finds the answer in a response.
func (find *finder) extractAnswer(v Verifier, response string) extract {
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

// fromBox takes the last complete box of s, and the run of boxes it ends.
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
	e := extract{from: fromBoxed}
	if clean(b.content) == "" {
		return extract{reason: "the last box is empty"}
	}
	if find.deniedBox(s, b) {
		return extract{reason: "the last box is denied"}
	}
	text, outside, ok := find.boxText(s, b)
	if !ok {
		return extract{reason: "the last box is a part of something larger"}
	}
	if find.contradicted(s, b, text) {
		return extract{reason: "the last box is equated with something else"}
	}
	e.texts, e.outside = append(e.texts, text+find.otherAnswer(s, b)), outside
	if all, either := find.joinedBoxes(s, b); either && !slices.ContainsFunc(all, func(text string) bool {
		return strings.ContainsAny(text, "<>=") || strings.Contains(text, `\le`) || strings.Contains(text, `\ge`)
	}) {
		e.texts = []string{strings.Join(all, `\text{ or }`)} // two answers, unless the gold has both
	} else if all != nil {
		e.texts = append(e.texts, strings.Join(all, ", "))
	}
	return e
}

// fromTag returns the content of the last <answer>...</answer>, or of the box in it.
// Strictly, the tag must be as in the R1 template: "</think> <answer>" with a closing
// tag.
func (find *finder) fromTag(s string, strict bool) extract {
	find.steps += len(s)
	open := strings.LastIndex(s, "<answer>")
	if open < 0 {
		return extract{reason: "no <answer> tag"}
	}
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

// unphrased takes off "The answer is", unless words before it deny it.
func (find *finder) unphrased(s string) string {
	if at := find.afterPhrase(s); at >= 0 && at < len(s) && clean(s[at:]) != "" && !find.denied("", s[:at]) {
		return s[at:]
	}
	return s
}

// clean is s without white space, math delimiters and emphasis around it.
func clean(s string) string {
	for {
		t := strings.TrimFunc(s, isBlank)
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

// goldText returns the text of a gold: the boxes in it, or all of it. Prose without a box
// is searched like a response. It reports whether there is any text.
func (find *finder) goldText(gold string) (string, bool) {
	find.steps += len(gold)
	text := gold
	if b, ok := find.lastBox(gold); ok {
		// A gold that was cut off in its box still counts.
		text = b.content
		if b.closed {
			if whole, _, ok := find.boxText(gold, b); ok {
				text = whole
			}
		}
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
