package models_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"onering/models"
)

// TestShare: shared weights equal those of the folder, with one copy in memory for all
// processes that map them.
func TestShare(t *testing.T) {
	dir, _ := savedAs(t, blockConfig, func(*models.Weights) {})
	for _, c := range []models.Compute{{}, {Base: models.BF16}, {Base: models.I8}} {
		_, want, err := models.LoadHeld(dir, c)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		f, err := models.Share(dir, "small", c)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var maps [2]*models.Weights
		for i := range maps {
			if _, maps[i], err = models.LoadShared(f, dir, "small", c); err != nil {
				t.Fatal(err)
			}
			defer maps[i].Close()
			if !slices.Equal(maps[i].Data, want.Data) || c.Narrow() && !(slices.Equal(maps[i].Narrow.Data, want.Narrow.Data) && slices.Equal(maps[i].Narrow.Scales, want.Narrow.Scales)) {
				t.Errorf("%v: the shared weights are others", c.Base)
			}
		}
		// A write to the file shows in both maps, because they share its memory.
		p, _ := want.Layout.Find("model.norm.weight")
		if _, err := f.WriteAt([]byte{0, 0, 0, 0x41}, 1<<16+4*int64(p.Offset)); err != nil {
			t.Fatal(err)
		}
		if a, b := maps[0].Data[p.Offset], maps[1].Data[p.Offset]; a != 8 || b != 8 {
			t.Errorf("%v: the maps have %g and %g, want 8", c.Base, a, b)
		}
		if _, _, err := models.LoadShared(f, dir, "other", c); err == nil || !strings.Contains(err.Error(), `are those of "small", not of "other"`) {
			t.Errorf("another key: error %v", err)
		}
		if _, _, err := models.LoadShared(f, dir, "small", models.Compute{Base: models.F16}); err == nil && !c.Narrow() {
			t.Error("another type: no error")
		}
	}
	if _, err := models.Share(os.DevNull, "x", models.Compute{}); err == nil {
		t.Error("sharing no model: no error")
	}
}
