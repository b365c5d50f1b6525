"""An object that does more than its class says, and still is one of it."""

from __future__ import annotations

from typing import Any


def extend(instance: Any, extension: type, attributes: dict[str, Any]) -> None:
    """Has the extension's methods come before those of the object's own class.

    What asks the object for its class, as Keras does to save it, finds its own: what was saved
    loads without us. type() finds a subclass of the same name, whose from_config() makes such
    objects, too.

    Args:
        instance: keeps all that it has.
        extension: a class of methods, whose super() is the own class.
        attributes: of the subclass.
    """
    own = instance.__class__
    body = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
        "__class__": property(lambda _: own),
        **attributes,
    }
    extended = type(own.__name__, (extension, own), body)
    object.__setattr__(instance, "__class__", extended)
