package policy

import (
	"fmt"
	"os"

	"onering/models"
)

// ShareBase reads the model of a folder, beside which runs train adapters, into memory that
// their processes share: see models.Share. base is a value of lora.base_dtype, and name what
// the adapters' files call the model.
func ShareBase(path, base, name string) (*os.File, error) {
	dir, remove, err := Unpacked(path)
	if err != nil {
		return nil, err
	}
	defer remove()
	compute := models.Compute{Base: BaseTypes[base]}
	return models.Share(dir, sharedKey(name, compute), compute)
}

// sharedKey names the weights of a model as they are held.
func sharedKey(base string, c models.Compute) string { return fmt.Sprintf("%s %v", base, c.Base) }
