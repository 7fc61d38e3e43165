package settings

import (
	_ "embed"
	"slices"
	"strings"
)

// foreignNames map settings of other trainers (TRL, transformers, verl, OpenRLHF, PEFT)
// to ours. A line has paths, of which the first that exists counts, and the foreign
// names; or names and a remark.
//
//go:embed foreign.txt
var foreignNames string

// foreign says, as the end of a message, which setting replaces a key of another trainer,
// by one of flags if it has one; "" if it is unknown.
func (r *Resolved) foreign(key string, flags map[string]string) string {
	key = strings.ReplaceAll(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "-", "_")
	for line := range strings.Lines(foreignNames) {
		answer, names, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.Contains(" "+names+" ", " "+key+" ") || key == "" {
			continue
		}
		if !strings.Contains(answer, ".") {
			return "; here " + answer
		}
		for path := range strings.FieldsSeq(answer) {
			if f := r.find(path); f != nil {
				name := path
				if flags != nil { // of a command line
					name = called(flags, path, "--set "+path+"=...")
				}
				return strings.TrimSuffix("; here it is "+name+": "+f.tag.Get("help"), ": ")
			}
			section, _, _ := strings.Cut(path, ".")
			if slices.ContainsFunc(r.sections, func(t Section) bool { return t.Name == section && plugOf(t.Pointer) != nil }) {
				return "; here it is " + path + ", which not every " + section + " has"
			}
		}
	}
	return ""
}

// called returns the flag of the setting at a path, or other if it has none.
func called(flags map[string]string, path, other string) string {
	if flag := flags[path]; flag != "" {
		return "--" + flag
	}
	return other
}

// Called says, as the end of a message, which flag or setting an unknown flag may mean.
func (r *Resolved) Called(flag string) string {
	if hint := r.foreign(flag, r.of.Flags); hint != "" {
		return hint
	}
	for _, t := range r.sections {
		key := strings.ReplaceAll(strings.TrimPrefix(flag, t.Name+"-"), "-", "_")
		for _, f := range t.Fields {
			path := t.Name + "." + f.Key
			if t.list == "" && (f.Key == key || f.Flag == flag) {
				return "; it is " + called(r.of.Flags, path, "--set "+path+"=...")
			}
		}
	}
	return ""
}

// find returns the setting at a path, nil if there is none.
func (r *Resolved) find(path string) *Field {
	for _, t := range r.sections {
		if key, ok := strings.CutPrefix(path, t.Name+"."); ok {
			if k := slices.Index(keysOf(t.Fields), key); k >= 0 {
				return &t.Fields[k]
			}
		}
	}
	return nil
}
