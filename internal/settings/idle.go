package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Idle calls say for each setting that was given but has no effect beside the others, by the tags needs, with what
// does not hold, such as "optimizer.schedule is not constant". A value that turns something off is not idle, nor is a
// default in a file, since run.toml states every key.
func (r *Resolved) Idle(say func(s Setting, needs string)) {
	for _, t := range r.sections {
		for _, f := range t.Fields {
			s, given := r.decided[t.Name+"."+f.Key]
			off := slices.Contains([]string{"", "0", "false"}, f.text())
			if !given || off || s.InFile() && f.text() == r.defaults[s.Path()] {
				continue
			}
			conditions := t.needs + "," + f.Tag("needs") // each of them, that between commas, has to hold
			if f.Tag("needs") == "-" {                   // the key needs nothing, not even what its section needs
				conditions = ""
			}
			for condition := range strings.SplitSeq(conditions, ",") {
				if needs := r.lacks(t, f.Key, condition); needs != "" {
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

// lacks returns in words the alternatives of a condition, such as "kl_beta!=0 kl_reward!=0", of which none holds for a
// key of section t; "" if one holds. One about the key itself, or about a setting that does not exist, holds.
func (r *Resolved) lacks(t Section, key, condition string) string {
	var texts []string
	for alternative := range strings.FieldsSeq(condition) { // path=want or path!=want
		path, want, _ := strings.Cut(alternative, "=")
		path, unequal := strings.CutSuffix(path, "!")
		if !strings.Contains(path, ".") {
			path = t.Name + "." + path
		}
		f := r.find(path)
		if f == nil || path == t.Name+"."+key || (f.text() == want) != unequal {
			return ""
		}
		texts = append(texts, path+map[bool]string{false: " is ", true: " is not "}[unequal]+cmp.Or(want, "empty"))
	}
	return strings.Join(texts, " or ")
}
