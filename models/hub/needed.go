package hub

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"onering/internal/strict"
	"onering/models"
)

// neededFiles returns the files to download out of all files of a repository. read returns the content of one of them.
func (r repo) neededFiles(files []string, read func(name string) ([]byte, error)) ([]string, error) {
	if r.kind == dataset {
		return r.neededData(files)
	}
	has := map[string]bool{}
	for _, f := range files {
		has[f] = true
	}
	switch {
	case has["config.json"]:
	case has["adapter_config.json"]:
		return nil, errors.New("it is a PEFT adapter (adapter_config.json), not a model: merge it into its base model " +
			"with PEFT's merge_and_unload and save_pretrained, and name the folder with the result")
	case slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, ".gguf") }):
		return nil, errors.New("it holds GGUF files and no config.json: name the model that they were made from")
	default:
		return nil, errors.New("there is no config.json, so it is not a model")
	}
	out := []string{"config.json"}
	for _, f := range files {
		if f == "generation_config.json" || slices.Contains(models.TokenizerFiles, f) || path.Dir(f) == models.TemplateFolder && path.Ext(f) == ".jinja" {
			out = append(out, f)
		}
	}
	if r.noWeights {
		return out, nil
	}
	const one, index = "model.safetensors", "model.safetensors.index.json"
	switch {
	case has[one]:
		return append(out, one), nil
	case !has[index]:
		what := "no weights"
		for _, f := range files {
			if strings.HasSuffix(f, ".bin") || strings.HasSuffix(f, ".pt") || strings.HasSuffix(f, ".gguf") {
				what = "only " + f
			}
		}
		return nil, fmt.Errorf("there is no %s and no %s, %s: convert the weights to safetensors", one, index, what)
	}
	text, err := read(index)
	if err != nil {
		return nil, err
	}
	shards, err := shardNames(index, text, has)
	return append(append(out, index), shards...), err
}

// shardNames returns the names of the weight files in an index.
func shardNames(index string, text []byte, has map[string]bool) ([]string, error) {
	var shards struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := strict.JSON(text, &shards); err != nil {
		return nil, fmt.Errorf("%s: %w", index, err)
	}
	if len(shards.Files) == 0 {
		return nil, fmt.Errorf("%s lists no weights", index)
	}
	names := slices.Compact(slices.Sorted(maps.Values(shards.Files)))
	for _, f := range names {
		if !isRelative(f) {
			return nil, fmt.Errorf("%s names %.80q, which is outside of the folder", index, f)
		}
		if !has[f] {
			return nil, fmt.Errorf("%s names %s, which is not there", index, f)
		}
	}
	return names, nil
}

// neededData returns the files of a data set to download: the named one, or those with rows in the named folder.
func (r repo) neededData(files []string) ([]string, error) {
	if slices.Contains(files, r.path) {
		return []string{r.path}, nil
	}
	var out []string
	for _, f := range files {
		if r.path != "" && !strings.HasPrefix(f, r.path+"/") {
			continue
		}
		// README.md and hidden files are left out. state.json and others that the library datasets saved hold no rows,
		// but they are needed to read its folders: isData takes them by their extension.
		if base := path.Base(f); !strings.HasPrefix(base, ".") && base != "README.md" && r.isData(base) {
			out = append(out, f)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case r.path != "":
		return nil, fmt.Errorf("there is no file %s with rows, and no folder %[1]s with such files", r.path)
	}
	return nil, errors.New("there are no files with rows of a format that is read")
}
