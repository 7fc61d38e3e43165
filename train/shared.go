package train

import (
	"fmt"
	"os"

	"onering/models"
)

// ShareBase reads the model of c, which trains an adapter, into memory that other
// processes of such runs share: see models.Share. base is what the adapters' files
// call the model.
func ShareBase(c Config, base string) (*os.File, error) {
	dir, remove, err := Unpacked(c.Model.Path)
	if err != nil {
		return nil, err
	}
	defer remove()
	compute := models.Compute{Base: BaseTypes[c.LoRA.BaseDType]}
	return models.Share(dir, sharedKey(base, compute), compute)
}

// sharedKey names the weights of a model as they are held.
func sharedKey(base string, c models.Compute) string { return fmt.Sprintf("%s %v", base, c.Base) }
