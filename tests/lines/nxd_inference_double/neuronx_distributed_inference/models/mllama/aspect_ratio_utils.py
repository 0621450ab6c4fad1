"""Images, which this double does not have."""


def get_all_supported_aspect_ratios(max_image_tiles: int) -> list[tuple[int, int]]:
    raise NotImplementedError
