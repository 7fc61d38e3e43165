package settings

import (
	_ "embed"
	"slices"
	"strings"
)

// foreignNames map what other programs call things (TRL, transformers, verl, OpenRLHF, PEFT, vLLM, lm-eval) to what
// is here. A line has words and the foreign names: "--context rollout.max_new_tokens: max_length". A word is the path of
// a setting, a flag that is no setting, or FILE, an argument; the first that there is counts. "here ..." is a remark.
//
//go:embed foreign.txt
var foreignNames string

// Where a key stands that foreign is asked for.
const inFile, onCommandLine = false, true

// foreign says, as the end of a message, what replaces a key of another program here; "" if it is unknown. typed says
// that the key was typed as a flag: then only what the command has on its command line counts, and is named by its
// flag.
func (r *Resolved) foreign(key string, typed bool) string {
	key = strings.ReplaceAll(strings.ToLower(key[strings.LastIndexByte(key, '.')+1:]), "-", "_")
	for line := range strings.Lines(foreignNames) {
		answer, names, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.Contains(" "+names+" ", " "+key+" ") || key == "" {
			continue
		}
		if strings.HasPrefix(answer, "here ") {
			return "; " + answer
		}
		for word := range strings.FieldsSeq(answer) {
			section, _, isPath := strings.Cut(word, ".")
			name, help := word, ""
			switch f := r.find(word); {
			case !isPath && (!typed || r.command.Others[word] == ""): // a run file states no flags, or the command has no such flag
				continue
			case typed && !r.command.Sets && r.command.Flags[word] == "" && isPath: // the command has neither --set nor a flag for it
				continue
			case !isPath: // a flag that is no setting, or an argument
				help = r.command.Others[word]
			case f != nil:
				help = f.tag.Get("help")
			case slices.ContainsFunc(r.sections, func(t Section) bool { return t.Name == section && plugOf(t.Pointer) != nil }):
				return "; here it is " + word + ", which not every " + section + " has"
			default: // the configuration does not have it
				continue
			}
			if typed && isPath {
				name = called(r.command.Flags, word, "--set "+word+"=...")
			}
			return strings.TrimSuffix("; here it is "+name+": "+help, ": ")
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

// Called says, as the end of a message, which flag or setting of the command an unknown flag may mean; "" if none.
func (r *Resolved) Called(flag string) string {
	if hint := r.foreign(flag, onCommandLine); hint != "" {
		return hint
	}
	for _, t := range r.sections {
		key := strings.ReplaceAll(strings.TrimPrefix(flag, t.Name+"-"), "-", "_")
		for _, f := range t.Fields {
			path := t.Name + "." + f.Key
			if t.list == "" && (f.Key == key || f.Flag == flag) && (r.command.Sets || r.command.Flags[path] != "") {
				return "; it is " + called(r.command.Flags, path, "--set "+path+"=...")
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
