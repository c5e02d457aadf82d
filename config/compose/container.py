"""Makes the container `lake` in Azurite, once: in Azure the owner of the account makes it."""

import os

from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobServiceClient

account = BlobServiceClient(
    "http://storage:10000/devstoreaccount1",
    credential={"account_name": "devstoreaccount1", "account_key": os.environ["AZURITE_KEY"]},
)
try:
    account.create_container("lake")
except ResourceExistsError:
    print("the container lake is there")
