package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Idle calls say for each setting that was given but has no effect beside the others, by
// the tags needs, with what does not hold, such as "optimizer.schedule is not constant". A
// value that turns something off is not idle, nor a default in a file, since run.toml
// states every key.
func (r *Resolved) Idle(say func(s Setting, needs string)) {
	for _, t := range r.sections {
		for _, f := range t.Fields {
			s, given := r.decided[t.Name+"."+f.Key]
			off := slices.Contains([]string{"", "0", "false"}, f.text())
			if !given || off || s.inside != nil && f.text() == r.defaults[s.Path()] {
				continue
			}
			conditions := t.needs + "," + f.Tag("needs")
			if f.Tag("needs") == "-" {
				conditions = ""
			}
			for all := range strings.SplitSeq(conditions, ",") {
				if needs := r.lacks(t, f.Key, all); needs != "" {
					say(s, needs)
					break
				}
			}
		}
	}
}

// text is the value as a tag needs writes it: a list without its brackets, and nothing for nil.
func (f Field) text() string {
	return strings.TrimPrefix(strings.Trim(fmt.Sprint(f.Value.Interface()), "[]"), "<nil>")
}

// lacks returns conditions with spaces between them in words if none of them holds for a
// key of section t. One about the key itself, or about a key that t lacks, holds.
func (r *Resolved) lacks(t Section, key, conditions string) string {
	var texts []string
	for condition := range strings.FieldsSeq(conditions) {
		path, want, _ := strings.Cut(condition, "=")
		path, other := strings.CutSuffix(path, "!")
		if !strings.Contains(path, ".") {
			path = t.Name + "." + path
		}
		f := r.find(path)
		if f == nil || path == t.Name+"."+key || (f.text() == want) != other {
			return ""
		}
		texts = append(texts, path+map[bool]string{false: " is ", true: " is not "}[other]+cmp.Or(want, "empty"))
	}
	return strings.Join(texts, " or ")
}
