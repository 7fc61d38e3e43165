package modeltest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/internal/files"
	"onering/models"
)

// checkFolder saves and loads a model.
func checkFolder(t testing.TB, _ string, m models.Model, w *models.Weights) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := m.Save(dir, w, models.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	back, loaded := must2(models.Load(dir))(t)
	defer loaded.Close()
	if !slices.Equal(loaded.Data, w.Data) {
		t.Error("the weights differ after Save and Load")
	}
	if !slices.Equal(loaded.Layout.Names(), w.Layout.Names()) || back.Sizes != m.Sizes {
		t.Errorf("the model is %+v after Save and Load, was %+v", back.Sizes, m.Sizes)
	}
	tensors := w.Tensors()
	extra := models.Tensor{Name: "model.another.weight", Shape: []int{1}, Data: []float32{1}}
	for what, wrong := range map[string][]models.Tensor{tensors[len(tensors)/2].Name: slices.Delete(slices.Clone(tensors),
		len(tensors)/2, len(tensors)/2+1), extra.Name: append(tensors, extra)} {
		dir := filepath.Join(t.TempDir(), "model")
		err := files.WriteFolder(dir, func(d *files.Draft) error { return models.WriteModel(d.WriteFile, models.F32, wrong, 1<<30) })
		if err != nil {
			t.Fatal(err)
		}
		if err := loaded.Layout.Check(mustOpen(t, dir)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("a folder whose tensor %s is one too many or missing: %v", what, err)
		}
	}
}

// mustOpen opens a folder's tensors until the end of the test.
func mustOpen(t testing.TB, dir string) *models.Folder {
	t.Helper()
	folder := must(models.OpenFolder(dir))(t)
	t.Cleanup(func() { folder.Close() })
	return folder
}
