package choice

import (
	"regexp"
	"slices"
	"strings"

	"onering/reward/texts"
)

// Bounds of what is read. A statement that is longer is cut off, and phrases before
// the last ones do not count.
const (
	longest     = 4096 // bytes of a statement
	mostPhrases = 32
)

// find returns the choices that a response picks, sorted. If it picks none, or
// cannot be read as picking some, the reason says so.
func (r *rule) find(o options, response string) (picked []int, reason string) {
	s, ok := texts.Extract{After: r.After}.Rest(response)
	if !ok {
		return nil, "no " + r.After + " in the response"
	}
	in := func(where string) bool { return r.Where == where || r.Where == "auto" }
	if in("boxed") {
		if box := lastBoxes(s); strings.TrimSpace(box) != "" {
			return o.read(box, false)
		}
	}
	if in("tag") {
		if tag := texts.LastTag(s, "answer"); strings.TrimSpace(tag) != "" {
			return o.read(tag, false)
		}
	}
	if in("phrase") {
		if picked, reason, ok := o.lastPhrase(s); ok {
			return picked, reason
		}
	}
	switch {
	case in("last_line"):
		return o.read(texts.LastLine(s), false)
	case r.Where == "whole":
		return o.read(s, false)
	}
	return nil, "no answer in the response"
}

// boxJoint is what stands between boxes that are one answer.
var boxJoint = regexp.MustCompile(`^[ \t$,;&]*\n?[ \t$,;&]*(?:(?:and|or)\b)?[ \t$,;&]*\n?[ \t$,;&]*$`)

// lastBoxes returns the content of the last complete box, with that of the boxes
// before it that only a comma or a word such as "or" keeps apart.
func lastBoxes(s string) string {
	var all []string
	start := -1
	boxes := texts.Boxes(s)
	for i := len(boxes) - 1; i >= 0 && len(all) < mostChoices; i-- {
		b := boxes[i]
		if !b.Closed {
			continue
		}
		if start >= 0 && (b.End > start || start-b.End > 40 || !boxJoint.MatchString(s[b.End:start])) {
			break
		}
		all, start = append(all, b.Content), b.Start
	}
	slices.Reverse(all)
	return strings.Join(all, ", ")
}

// A phrase announces an answer: "the answer is", "Answer:", "the correct option
// would be", with marks of emphasis in it.
var phrase = regexp.MustCompile(`(?i)(?:\b(?:answers?|option|choice)\b[*_\s]*(?:\b(?:to|for|of)(?:\s+[\pL\pN]+){1,6}\s+)?(?:(?:is|are|be|was)\b|(?:would|should|must|will|can only) be\b|[:=：])|答案\s*(?:是|为|[:：])|选)[*_\s:：]*`)

const refusedReason = "the answer is said not to be something"

var refusal = regexp.MustCompile(`(?i)^(?:not|never|neither|none|no longer)\b`)

// lastPhrase reads what the last phrase announces. A phrase with something else
// behind it, as in "this answer is plausible", does not count. One that says what
// the answer is not leaves the decision to those before it, if they say otherwise.
func (o options) lastPhrase(s string) (picked []int, reason string, ok bool) {
	var refused []int
	found := phrase.FindAllStringIndex(s, -1)
	for i := len(found) - 1; i >= max(0, len(found)-mostPhrases); i-- {
		rest := s[found[i][1]:]
		rest = rest[:min(len(rest), longest)]
		if end := strings.IndexAny(rest, "\n\r"); end >= 0 {
			rest = rest[:end]
		}
		if no := refusal.FindString(rest); no != "" {
			if _, isText := o.withText(rest); !isText {
				not, _ := o.read(rest[len(no):], true)
				if not == nil {
					return nil, refusedReason, true
				}
				refused = append(refused, not...)
				continue
			}
		}
		picked, reason = o.read(rest, true)
		switch {
		case slices.ContainsFunc(picked, func(at int) bool { return slices.Contains(refused, at) }):
			return nil, refusedReason, true
		case len(picked) > 0 || reason != unreadable:
			return picked, reason, true
		}
	}
	return nil, refusedReason, refused != nil
}
